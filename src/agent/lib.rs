//! The agent: session, worker, task runner, reporter, ledger, runtimes.
