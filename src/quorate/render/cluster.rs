//! The managers: who leads, how far each is, who disagrees.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_base::Timestamp;
use quorate_client::ManagerAnswer;
use quorate_model::quantity;
use quorate_wire::api::{GetClusterStatusResponse, Manager, ManagerRole, ManagerState};
use quorate_wire::common::ResponseMeta;
use serde_json::{Value, json};

use super::style::Tint;
use super::table::{Cell, Column, Keep, Layout, Side, column, draw};
use super::words::{NONE, flow, or_none, short, span, word};

/// A line about a manager, cell by cell.
struct Row {
    leads: bool,
    name: String,
    address: String,
    role: String,
    state: String,
    term: String,
    applied: String,
    lag: String,
    contact: String,
    flush: String,
    store: String,
    version: String,
}

/// What is shown of each manager.
const COLUMNS: &[Column<Row>] = &[
    column("leads", "", Side::Left, Keep::Always, |row, _| if row.leads { "*" } else { "" }.into()),
    column("name", "NAME", Side::Left, Keep::Always, |row, _| row.name.as_str().into()),
    column("address", "ADDRESS", Side::Left, Keep::Until(1), |row, _| row.address.as_str().into()),
    column("role", "ROLE", Side::Left, Keep::Until(4), |row, _| row.role.as_str().into()),
    column("state", "STATE", Side::Left, Keep::Always, |row, _| {
        Cell::from(row.state.as_str()).tint(match row.state.as_str() {
            SILENT => Tint::Bad,
            "leader" | "follower" => Tint::Good,
            _ => Tint::Warn,
        })
    }),
    column("term", "TERM", Side::Right, Keep::Until(5), |row, _| row.term.as_str().into()),
    column("applied", "APPLIED", Side::Right, Keep::Until(2), |row, _| row.applied.as_str().into()),
    column("lag", "LAG", Side::Right, Keep::Always, |row, _| row.lag.as_str().into()),
    column("contact", "CONTACT", Side::Left, Keep::Until(3), |row, _| row.contact.as_str().into()),
    column("flush", "FLUSH", Side::Right, Keep::Until(6), |row, _| row.flush.as_str().into()),
    column("store", "STORE", Side::Right, Keep::Until(7), |row, _| row.store.as_str().into()),
    column("version", "VERSION", Side::Left, Keep::Until(8), |row, _| row.version.as_str().into()),
];

/// What is said of a manager that does not answer.
const SILENT: &str = "silent";

/// All that the managers said, put together.
pub(crate) struct View<'a> {
    answers: &'a [ManagerAnswer],
    /// The word of the leader, or else of whom has applied most.
    best: Option<&'a GetClusterStatusResponse>,
    leads: bool,
    voters: usize,
    answering_voters: usize,
}

/// How the cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// A leader, and room for a failure (or one manager alone, which never has any).
    Good,
    /// A leader, and the next failure stops all writes.
    Fragile,
    /// No manager answers at all.
    Silent,
    /// No leader answers.
    NoLeader,
    /// Fewer managers answer than a decision needs.
    NoQuorum,
    /// The managers have not found each other yet.
    NotFormed,
}

fn meta(answer: &GetClusterStatusResponse) -> ResponseMeta {
    answer.meta.clone().unwrap_or_default()
}

fn state(answer: &GetClusterStatusResponse) -> ManagerState {
    answer.raft.as_ref().map_or(ManagerState::Unspecified, |raft| raft.state())
}

impl<'a> View<'a> {
    /// Puts the answers together.
    pub(crate) fn new(answers: &'a [ManagerAnswer]) -> Self {
        let given = || answers.iter().filter_map(|one| one.answer.as_ref().ok());
        // A deposed leader may not know it yet: the highest term counts.
        let leader = given()
            .filter(|answer| state(answer) == ManagerState::Leader)
            .max_by_key(|answer| meta(answer).term);
        let best = leader
            .or_else(|| given().max_by_key(|answer| (meta(answer).term, meta(answer).applied_revision)));
        let voters: Vec<&Manager> = best.map_or_else(Vec::new, |best| {
            best.managers.iter().filter(|manager| manager.role() == ManagerRole::Voter).collect()
        });
        let answers_as = |manager: &&&Manager| given().any(|answer| meta(answer).manager == manager.name);
        let answering_voters = voters.iter().filter(answers_as).count();
        Self { answers, best, leads: leader.is_some(), voters: voters.len(), answering_voters }
    }

    /// Voters needed for a decision.
    fn quorum(&self) -> usize {
        self.voters / 2 + 1
    }

    /// How many more managers may fail before writes stop.
    fn tolerates(&self) -> usize {
        self.answering_voters.saturating_sub(self.quorum())
    }

    /// How the cluster is.
    pub(crate) fn health(&self) -> Health {
        match () {
            () if self.best.is_none() => Health::Silent,
            () if self.forming() => Health::NotFormed,
            () if self.answering_voters < self.quorum() => Health::NoQuorum,
            () if !self.leads => Health::NoLeader,
            () if self.voters > 1 && self.tolerates() == 0 => Health::Fragile,
            () => Health::Good,
        }
    }

    /// Whether those who answer belong to no cluster yet.
    fn forming(&self) -> bool {
        self.best.is_some() && self.voters == 0
    }

    /// Whom those who answer wait for before there is a cluster.
    fn formation(&self) -> String {
        let silent: Vec<&str> =
            self.answers.iter().filter(|one| one.answer.is_err()).map(|one| one.endpoint.as_str()).collect();
        let mut joining: Vec<String> = self.given().map(|answer| meta(answer).manager).collect();
        joining.sort();
        let (who, verb) = (joining.join(", "), if joining.len() == 1 { "is" } else { "are" });
        match silent.as_slice() {
            [] => format!("not formed yet: {who} {verb} joining"),
            silent => format!("not formed yet: {who} {verb} waiting for {}", silent.join(", ")),
        }
    }

    fn given(&self) -> impl Iterator<Item = &'a GetClusterStatusResponse> {
        self.answers.iter().filter_map(|one| one.answer.as_ref().ok())
    }

    /// How many voters answer, of how many, as a clause.
    pub(crate) fn quorum_words(&self) -> String {
        let verb = if self.answering_voters == 1 { "answers" } else { "answer" };
        format!("{} of {} managers {verb}, {} are needed", self.answering_voters, self.voters, self.quorum())
    }

    /// One line about all of it.
    pub(crate) fn headline(&self, layout: &Layout) -> String {
        let Some(best) = self.best else { return "no manager answers".to_owned() };
        if self.forming() {
            return format!("cluster {}", self.formation());
        }
        let meta = meta(best);
        let mut parts = vec![format!("cluster {}", or_none(&meta.cluster_id))];
        parts.push(format!("quorum {} of {}", self.quorum(), self.voters));
        if self.leads {
            let count = self.tolerates();
            let failures = if count == 1 { "failure" } else { "failures" };
            parts.push(match count {
                0 => "tolerates no failure".to_owned(),
                _ => format!("tolerates {count} {failures}"),
            });
            parts.push(format!("leader {} (term {})", meta.manager, meta.term));
        } else {
            parts.push(format!("no leader (term {})", meta.term));
        }
        parts.push(format!("revision {}", meta.applied_revision));
        flow(parts.iter().map(String::as_str), " · ", "  ", layout.width)
    }

    /// The managers, one a line; then what is not as it should be.
    ///
    /// # Errors
    /// The layout names a column that there is not.
    pub(crate) fn to_text(&self, layout: &Layout) -> Result<String, String> {
        let table = draw(COLUMNS, &self.rows(), layout, Timestamp::EPOCH)?;
        let mut out = format!("{}\n{table}", self.headline(layout));
        if let Some(best) = self.best {
            out.push_str(&format!(
                "\n{} · {} tasks run, {} wait for a node · {} of {} nodes ready",
                if best.jobs == 1 { "1 job".to_owned() } else { format!("{} jobs", best.jobs) },
                best.tasks_running,
                best.tasks_pending,
                best.nodes_ready,
                best.nodes_total
            ));
        }
        for note in self.notes() {
            let note = flow(format!("! {note}").split(' '), " ", "  ", layout.width);
            out.push_str(&format!("\n{}", layout.style.tint(Tint::Warn, &note)));
        }
        Ok(out)
    }

    fn rows(&self) -> Vec<Row> {
        let top = self.best.map(meta).unwrap_or_default();
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for manager in self.best.map_or(&[][..], |best| &best.managers) {
            let role = word(manager.role().as_str_name(), "MANAGER_ROLE");
            let silent = self.silence(&manager.api_address);
            rows.insert(manager.name.clone(), row(manager, role, silent.unwrap_or("not asked")));
        }
        for one in self.answers {
            let Ok(answer) = &one.answer else { continue };
            let own = meta(answer);
            let known = answer.managers.iter().find(|manager| manager.name == own.manager);
            let known = known.or_else(|| {
                self.best.and_then(|best| best.managers.iter().find(|manager| manager.name == own.manager))
            });
            let blank = Manager {
                name: own.manager.clone(),
                api_address: one.endpoint.clone(),
                ..Manager::default()
            };
            let manager = known.unwrap_or(&blank);
            let role =
                known.map_or_else(|| NONE.to_owned(), |m| word(m.role().as_str_name(), "MANAGER_ROLE"));
            let raft = answer.raft.unwrap_or_default();
            let mut cells = row(manager, role, "");
            cells.leads = state(answer) == ManagerState::Leader;
            cells.state = word(state(answer).as_str_name(), "MANAGER_STATE");
            cells.term = own.term.to_string();
            cells.applied = own.applied_revision.to_string();
            cells.lag = top.applied_revision.saturating_sub(own.applied_revision).to_string();
            cells.contact = match own.last_contact {
                _ if cells.leads => NONE.to_owned(),
                Some(contact) => short(span(&contact)),
                None => "never".to_owned(),
            };
            cells.flush = raft
                .last_flush
                .filter(|last| span(last) > Duration::ZERO)
                .map_or_else(|| NONE.to_owned(), |last| short(span(&last)));
            cells.store = quantity::memory(raft.store_bytes);
            rows.insert(own.manager, cells);
        }
        let listed: Vec<String> = rows.values().map(|cells| cells.address.clone()).collect();
        // Endpoints that nobody told the name of.
        for one in self.answers.iter().filter(|one| one.answer.is_err() && !listed.contains(&one.endpoint)) {
            let unknown =
                Manager { name: "?".into(), api_address: one.endpoint.clone(), ..Manager::default() };
            rows.insert(format!("~{}", one.endpoint), row(&unknown, NONE.to_owned(), SILENT));
        }
        rows.into_values().collect()
    }

    /// Why the manager at `address` said nothing.
    fn silence(&self, address: &str) -> Option<&'static str> {
        self.answers.iter().any(|one| one.endpoint == address && one.answer.is_err()).then_some(SILENT)
    }

    /// What is not as it should be, the gravest first: no leader, silence, and managers that see another leader, term or
    /// cluster, by name.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let top = self.best.map(meta).unwrap_or_default();
        match self.health() {
            Health::NoQuorum => notes.push(format!("no quorum: {}; writes wait", self.quorum_words())),
            Health::NoLeader if self.best.is_some() => notes.push(format!(
                "no leader: {} of {} managers answer, and none is elected since term {}; writes wait",
                self.answering_voters, self.voters, top.term
            )),
            _ => {}
        }
        let mut silent: Vec<String> = self
            .answers
            .iter()
            .filter_map(|one| Some((one, one.answer.as_ref().err()?)))
            .map(|(one, failed)| format!("{} does not answer: {}", one.endpoint, failed.failure))
            .collect();
        silent.sort();
        notes.append(&mut silent);
        let mut others: Vec<String> =
            self.given().filter_map(|answer| self.disagreement(answer, &top)).collect();
        others.sort();
        notes.append(&mut others);
        notes
    }

    /// How `answer` differs from the best one.
    fn disagreement(&self, answer: &GetClusterStatusResponse, top: &ResponseMeta) -> Option<String> {
        let own = meta(answer);
        let nobody = own.leader.is_empty();
        match () {
            () if !own.cluster_id.is_empty() && own.cluster_id != top.cluster_id => {
                Some(format!("{} belongs to another cluster: {}", own.manager, own.cluster_id))
            }
            // Who has not joined cannot know, and where none leads all say so.
            () if state(answer) == ManagerState::Joining || (nobody && !self.leads) => None,
            () if (&own.leader, own.term) == (&top.leader, top.term) => None,
            () if nobody => Some(format!("{} knows no leader (term {})", own.manager, own.term)),
            () if top.leader.is_empty() => {
                Some(format!("{} says that {} leads (term {})", own.manager, own.leader, own.term))
            }
            () => Some(format!(
                "{} says that {} leads (term {}), {} says {} (term {})",
                own.manager, own.leader, own.term, top.manager, top.leader, top.term
            )),
        }
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        let managers: Vec<Value> = self
            .answers
            .iter()
            .map(|one| match &one.answer {
                Ok(answer) => json!({ "endpoint": one.endpoint, "status": answer }),
                Err(failed) => json!({ "endpoint": one.endpoint, "error": failed.failure }),
            })
            .collect();
        let top = self.best.map(meta).unwrap_or_default();
        json!({
            "clusterId": top.cluster_id,
            "leader": if self.leads { top.manager } else { String::new() },
            "term": top.term.to_string(),
            "appliedRevision": top.applied_revision.to_string(),
            "voters": self.voters,
            "quorum": self.quorum(),
            "tolerates": self.tolerates(),
            "managers": managers,
            "notes": self.notes(),
        })
    }
}

fn row(manager: &Manager, role: String, state: &str) -> Row {
    let none = || NONE.to_owned();
    Row {
        leads: false,
        name: manager.name.clone(),
        address: manager.api_address.clone(),
        role,
        state: state.to_owned(),
        term: none(),
        applied: none(),
        lag: none(),
        contact: none(),
        flush: none(),
        store: none(),
        version: or_none(&manager.binary_version),
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
