//! Why a task is not placed: counts per filter, in words.

use std::fmt;

/// A reason for which the scheduler passes over a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filter {
    /// The node is down or not eligible.
    Ready,
    /// The node lacks the runtime that the task needs.
    Runtime,
    /// A constraint does not hold.
    Constraint,
    /// Not enough processor.
    Cpu,
    /// Not enough memory.
    Memory,
    /// A host port is taken.
    Port,
    /// The job's most tasks per node are there already.
    MaxPerNode,
    /// The node is short of disk or memory.
    Pressure,
}

/// One filter's share of the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Which filter.
    pub filter: Filter,
    /// How many nodes it excluded (each node counts for the first filter it fails).
    pub nodes: u32,
    /// What was asked and what the best node had, e.g. `need 1 CPU, best free 0.6`.
    pub detail: String,
}

/// Why no node took a task. Kept on the pending task and shown by `ps`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanation {
    /// Nodes looked at.
    pub total: u32,
    /// Counts per filter, in the order of the filters; sums up to `total`.
    pub reasons: Vec<Reason>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.total == 0 {
            return f.write_str("no node has joined the cluster");
        }
        for (i, reason) in self.reasons.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            let nodes = if self.total == 1 { "node" } else { "nodes" };
            write!(f, "{} of {} {nodes}: {}", reason.nodes, self.total, reason.detail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_reads_as_a_sentence() {
        let text = Explanation {
            total: 7,
            reasons: vec![
                Reason {
                    filter: Filter::Constraint,
                    nodes: 3,
                    detail: "node.labels.zone == b does not hold".into(),
                },
                Reason { filter: Filter::Cpu, nodes: 4, detail: "need 1 CPU, best free 0.6".into() },
            ],
        }
        .to_string();
        assert_eq!(
            text,
            "3 of 7 nodes: node.labels.zone == b does not hold; 4 of 7 nodes: need 1 CPU, best free 0.6"
        );
        assert_eq!(Explanation::default().to_string(), "no node has joined the cluster");
    }
}
