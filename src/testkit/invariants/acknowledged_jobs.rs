//! A job that was acknowledged exists, in that version or a newer one, until somebody asks for its purge.

use quorate_model::Name;

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new("acknowledged jobs exist", "O1: every acknowledged job exists until it is removed")
};

fn check(step: &Step<'_>) -> Verdict {
    let namespace = Name::default_namespace();
    for (name, (id, version)) in &step.journal.acknowledged {
        let job = step.after.job_named(&namespace, name);
        let kept = job.is_some_and(|job| job.id == *id && job.version >= *version);
        ensure(kept, || {
            format!("{name} was acknowledged as job {id} version {version}, but there is {job:?}")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::{JobId, JobVersion, RaftId};
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_lost_and_on_an_old_job() {
        let any = || Command::RemoveManager { id: RaftId(1) };
        let mut case = Case::running();
        let web: Name = "web".parse().unwrap();
        case.journal.acknowledged.insert(web.clone(), (JobId(0), JobVersion(1)));
        assert_eq!(case.step(any(), INVARIANT.step, |_| {}), Ok(()));
        case.journal.acknowledged.insert(web, (JobId(0), JobVersion(2)));
        assert!(case.step(any(), INVARIANT.step, |_| {}).unwrap_err().contains("version 2"));
        case.journal.acknowledged = [("api".parse().unwrap(), (JobId(1), JobVersion(1)))].into();
        assert!(case.step(any(), INVARIANT.step, |_| {}).unwrap_err().contains("there is None"));
    }
}
