//! Users of processes.

use nix::unistd::{Group, Uid, User, geteuid};

use crate::step::Fault;

/// The numbers of `user`, `uid`, `user:group` or `uid:gid`.
///
/// # Errors
/// Permanent: no such user or group, or the agent may not become that user.
pub(super) fn resolve(text: &str) -> Result<(u32, u32), Fault> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let (uid, own_gid) = uid(user)?;
    let gid = match group {
        Some(group) => gid(group)?,
        None => own_gid,
    };
    let me = geteuid();
    if !me.is_root() && me.as_raw() != uid {
        return Err(Fault::permanent(format!(
            "the agent runs as user {me} and cannot become {text}: run it as root or remove user from the job"
        )));
    }
    Ok((uid, gid))
}

/// A user's number and group. A number without a name is its own group.
fn uid(user: &str) -> Result<(u32, u32), Fault> {
    if let Ok(number) = user.parse() {
        let known = User::from_uid(Uid::from_raw(number)).ok().flatten();
        return Ok((number, known.map_or(number, |user| user.gid.as_raw())));
    }
    match User::from_name(user) {
        Ok(Some(found)) => Ok((found.uid.as_raw(), found.gid.as_raw())),
        Ok(None) => Err(Fault::permanent(format!("no user {user:?} on this node"))),
        Err(errno) => Err(Fault::permanent(format!("cannot look up user {user:?}: {}", errno.desc()))),
    }
}

fn gid(group: &str) -> Result<u32, Fault> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    match Group::from_name(group) {
        Ok(Some(found)) => Ok(found.gid.as_raw()),
        Ok(None) => Err(Fault::permanent(format!("no group {group:?} on this node"))),
        Err(errno) => Err(Fault::permanent(format!("cannot look up group {group:?}: {}", errno.desc()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::getegid;

    #[test]
    fn names_and_numbers_are_resolved() {
        let me = geteuid().as_raw();
        assert_eq!(resolve(&format!("{me}:{}", getegid())).unwrap().0, me);
        assert_eq!(resolve(&format!("{me}:7")).unwrap(), (me, 7));
        if geteuid().is_root() {
            assert_eq!(resolve("root").unwrap(), (0, 0));
            assert_eq!(resolve("4242").unwrap(), (4242, 4242));
        } else {
            assert!(resolve("0").unwrap_err().message.contains("run it as root"));
        }
    }

    #[test]
    fn strangers_are_refused() {
        assert_eq!(resolve("no-such-user").unwrap_err().message, "no user \"no-such-user\" on this node");
        let me = geteuid();
        let message = resolve(&format!("{me}:no-such-group")).unwrap_err().message;
        assert_eq!(message, "no group \"no-such-group\" on this node");
    }
}
