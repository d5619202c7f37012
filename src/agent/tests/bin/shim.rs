//! A process for tests of this crate to start and to kill: the supervisor of a process (the product's is `quorate
//! agent-shim`), or, as `agent DATA_DIR MANAGER`, a whole agent with the docker and the process runtime.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use quorate_agent::config::{DockerConfig, LogLimits, ProcessConfig, RuntimeConfig, ShimCommand, Storage};
use quorate_agent::{Agent, AgentConfig, shim_main};
use quorate_base::{Clock, TaskGroup};
use quorate_model::{Name, Resources};
use quorate_pki::Security;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args.as_slice() {
        [word, data_dir, manager] if word == "agent" => agent(data_dir, manager),
        _ => shim_main(args),
    }
}

fn agent(data_dir: &OsString, manager: &OsString) -> ExitCode {
    let (Ok(program), Ok(node)) = (std::env::current_exe(), Name::parse("node", "n1")) else {
        return ExitCode::FAILURE;
    };
    let shim = ShimCommand { program, args: Vec::new() };
    let process = Some(ProcessConfig { shim, logs: LogLimits::default() });
    let config = AgentConfig {
        node,
        storage: Storage::Folder(data_dir.into()),
        labels: BTreeMap::new(),
        managers: vec![manager.to_string_lossy().into_owned()],
        security: Security::default(),
        reserved: Resources::default(),
        capacity: None,
        runtimes: RuntimeConfig { docker: Some(DockerConfig::default()), process, fake: None },
        orphan_grace: Duration::from_millis(100),
        pressure: None,
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        let tasks = TaskGroup::new("agent", |failure| eprintln!("{failure}"));
        match Agent::start(config, Clock::system(), tasks.clone()).await {
            Ok(_agent) => {
                eprintln!("{}", tasks.failed().await);
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    })
}
