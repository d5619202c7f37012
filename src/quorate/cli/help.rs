//! Help on subjects that are no verbs: `quorate help exit-codes`.

/// The subjects.
const TOPICS: [(&str, &str); 4] =
    [("exit-codes", EXIT_CODES), ("environment", ENVIRONMENT), ("filters", FILTERS), ("spec", SPEC)];

/// What the words after the program's name ask for, when that is help on a subject.
pub(crate) fn topic(words: &[String]) -> Option<&'static str> {
    match words {
        [help, subject] if help == "help" => {
            TOPICS.iter().find(|(name, _)| name == subject).map(|(_, text)| text.trim_end())
        }
        _ => None,
    }
}

const EXIT_CODES: &str = "\
CODE  MEANING
   0  done (and converged, where the command waited)
   1  failed, not classified
   2  usage
   3  accepted, but not all tasks can be placed
   4  the job failed, or replicas gave up
   5  invalid file or argument
   6  not found
   7  conflict: the etag moved, or it exists already
   8  permission denied
   9  no leader, no quorum, unreachable or out of time (retry is sensible)
  10  plan --exit-code: something would change
  11  plan --exit-code: something would change, and not all of it finds a place
  12  cluster status: works, but tolerates no further failure
 130  interrupted while waiting; the work goes on";

const ENVIRONMENT: &str = "\
A flag goes before its variable, a variable before the context, the context before the default.

VARIABLE              SAME AS          MEANING
QUORATE_CONTEXT       --context        which saved cluster to talk to
QUORATE_MANAGERS      --manager        managers to talk to, comma separated
QUORATE_NAMESPACE     --namespace      namespace
QUORATE_SECURITY      --security       what protects the traffic
QUORATE_OUTPUT        --output         how to print results
QUORATE_CONSISTENCY   --consistency    how fresh answers must be
QUORATE_PROGRESS      --progress       how to show progress
QUORATE_ADMIN         --admin          debug: admin addresses of managers, comma separated
NO_COLOR              --color never    no colours, when not empty; TERM=dumb has the same effect
XDG_CONFIG_HOME                        contexts are kept in quorate/contexts.toml below it, else below ~/.config

QUORATE_MANAGER_… and QUORATE_AGENT_… are the settings of the daemons: QUORATE_MANAGER_RAFT__LISTEN is listen of [raft].";

const FILTERS: &str = "\
-l, --selector LABELS    labels of jobs (job ls, ps) or nodes (node ls): app=web,tier!=db; all must hold
--filter COLUMN=VALUE,…  rows with one of the values; repeated, all filters must hold. != means none of the values,
                         * stands for anything, letters may be large or small, status and state are the same:
                           quorate ps --filter status=failed,rejected --filter 'node!=n3'
                           quorate job ls --filter 'name=shop-*' --filter status=converging
                         A filter on the state of tasks looks at ended ones, too.
--sort-by COLUMN         upwards; downwards with - before it: --sort-by -restarts
--columns COLUMN,…       these, in this order; each can be named that -o wide shows
--no-headers             for scripts

job ls   namespace name type status tasks version image priority etag editor revision changed age
ps       id namespace job task node desired state last exit version restarts age instance revision reason
node ls  name zone status sched tasks cpu memory runtimes version host arch labels orphans revision seen reason

-o wide shows all columns, name only names, json, yaml and jsonl the API's own objects: filters and order hold there, too.
On a narrow terminal columns are left out and texts shortened, the least important first; what is piped is never cut.";

const SPEC: &str = concat!(
    "A job file is YAML, TOML or JSON; YAML may hold several jobs. Unknown fields are mistakes, save those that begin\n\
     with x-. A job of one container may give the container's fields at the top. A service:\n\n",
    include_str!("../../../config/jobs/web.yaml"),
    "\nA batch:\n\n",
    include_str!("../../../config/jobs/batch.yaml"),
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{job, node, task};

    #[test]
    fn each_subject_is_found_and_nothing_else() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (name, text) in TOPICS {
            assert_eq!(topic(&words(&format!("help {name}"))), Some(text.trim_end()));
            assert!(text.lines().all(|line| line.chars().count() <= 125), "{name}");
        }
        for line in ["help", "help run", "exit-codes", "help exit-codes run"] {
            assert_eq!(topic(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn every_column_is_told() {
        fn keys<T>(columns: &[crate::render::table::Column<T>]) -> String {
            columns.iter().map(|column| column.key).collect::<Vec<_>>().join(" ")
        }
        for list in [keys(job::COLUMNS), keys(task::COLUMNS), keys(node::COLUMNS)] {
            assert!(FILTERS.lines().any(|line| line.ends_with(&format!("  {list}"))), "{list}");
        }
    }
}
