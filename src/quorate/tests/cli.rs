//! The executable as scripts see it: standard output, standard error and the exit code.

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::process::{Command, Output, Stdio};

    /// Runs the executable with nothing of ours in its environment.
    fn command(args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("QUORATE_") {
                command.env_remove(name);
            }
        }
        // Whatever contexts the user has saved.
        command.env("XDG_CONFIG_HOME", "/nonexistent");
        command.args(args).stdin(Stdio::null());
        command
    }

    fn quorate(args: &[&str]) -> (i32, String, String) {
        outcome(&command(args).output().unwrap())
    }

    fn outcome(output: &Output) -> (i32, String, String) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// An address where nobody listens.
    fn nowhere() -> String {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }

    #[test]
    fn the_version_is_data_and_goes_to_standard_output() {
        let (code, out, err) = quorate(&["version", "-o", "json"]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["api"], "quorate.api.v1");
        assert!(quorate(&["version"]).1.starts_with("quorate "));
        assert!(quorate(&["version", "-o", "yaml"]).1.starts_with("---\napi: quorate.api.v1\n"));
        assert_eq!(quorate(&["version", "-o", "jsonl"]).1.lines().count(), 1);
    }

    #[test]
    fn the_exit_codes_are_listed() {
        let (code, out, _) = quorate(&["help", "exit-codes"]);
        assert_eq!(code, 0);
        assert!(out.contains("\n   3  accepted, but not all tasks can be placed\n"), "{out}");
        assert!(out.trim_end().ends_with(" 130  interrupted while waiting; the work goes on"), "{out}");
    }

    #[test]
    fn stale_reads_are_not_hinted_at_where_the_read_was_stale() {
        let args = ["-m", &nowhere(), "ps", "--consistency", "stale", "--timeout", "200ms"];
        let (code, _, err) = quorate(&args);
        assert_eq!(code, 9);
        assert!(err.contains("UNREACHABLE") && !err.contains("--consistency stale"), "{err}");
    }

    #[test]
    fn a_shell_is_told_how_to_ask_and_gets_verbs_values_and_no_complaints() {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let (code, out, err) = quorate(&["completion", shell]);
            assert_eq!((code, err.as_str()), (0, ""), "{shell}");
            assert!(out.contains("QUORATE_COMPLETE"), "{shell}");
        }
        let complete = |words: &[&str]| {
            let index = (words.len() - 1).to_string();
            let mut command = command(&["--"]);
            command.args(words).env("QUORATE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index);
            outcome(&command.env("_CLAP_IFS", "\n").output().unwrap())
        };
        assert_eq!(complete(&["quorate", "sca"]), (0, "scale".into(), String::new()));
        assert_eq!(complete(&["quorate", "-o", "json"]).1, "json\njsonl");
        // Nobody answers, and that is no reason to disturb somebody who types.
        let (code, out, err) = complete(&["quorate", "-m", &nowhere(), "stop", "w"]);
        assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    }

    #[test]
    fn each_verb_gets_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("man");
        let (code, out, err) = quorate(&["man", into.to_str().unwrap()]);
        assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
        let page = |name: &str| std::fs::read_to_string(into.join(name)).unwrap();
        assert!(page("quorate.1").contains("A highly available control plane"));
        assert!(page("quorate-job-scale.1").contains("JOB=REPLICAS"));
        let (code, _, err) = quorate(&["man", "/dev/null/man"]);
        assert!(code == 1 && err.starts_with("error: /dev/null/man: cannot be written: "), "{err}");
    }

    #[test]
    fn contexts_are_saved_chosen_and_stand_behind_flags_and_environment() {
        let home = tempfile::tempdir().unwrap();
        let at = |args: &[&str], env: &[(&str, &str)]| {
            let mut command = command(args);
            command.env("XDG_CONFIG_HOME", home.path()).envs(env.iter().copied());
            outcome(&command.output().unwrap())
        };
        let [prod, dev, flag] = [nowhere(), nowhere(), nowhere()];
        assert_eq!(at(&["context", "ls"], &[]).1, "no contexts\n");
        let (code, _, err) = at(&["context", "set", "prod"], &[]);
        assert!(code == 2 && err.contains("add --manager HOST:PORT"), "{err}");
        assert_eq!(at(&["context", "set", "prod", "-m", &prod, "-n", "shop"], &[]).0, 0);
        assert_eq!(at(&["context", "set", "dev"], &[("QUORATE_MANAGERS", &dev)]).0, 0);
        let listed = format!("   NAME  MANAGERS         NAMESPACE\n   dev   {dev}\n*  prod  {prod}  shop\n");
        assert_eq!(at(&["context", "ls"], &[]).1, listed);
        let asked =
            |args: &[&str], env: &[(&str, &str)]| at(&[&["ps", "--timeout", "100ms"], args].concat(), env).2;
        assert!(asked(&[], &[]).contains(&prod));
        assert!(asked(&["--context", "dev"], &[("QUORATE_CONTEXT", "prod")]).contains(&dev));
        assert!(asked(&[], &[("QUORATE_CONTEXT", "dev")]).contains(&dev));
        assert!(asked(&[], &[("QUORATE_CONTEXT", "prod"), ("QUORATE_MANAGERS", &dev)]).contains(&dev));
        assert!(asked(&["-m", &flag], &[("QUORATE_MANAGERS", &dev)]).contains(&flag));
        let (code, _, err) = at(&["ps", "--context", "prd"], &[]);
        assert!(code == 6 && err.contains("did you mean prod?"), "{err}");
        assert_eq!(at(&["context", "use", "dev"], &[]).0, 0);
        let (_, out, _) = at(&["context", "show", "-o", "json"], &[]);
        let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&shown["name"], &shown["managers"][0]), (&"dev".into(), &dev.as_str().into()));
        let (code, _, err) = at(&["context", "rm", "dev"], &[]);
        assert!(code == 2 && err.contains("add --yes"), "{err}");
        assert_eq!(at(&["context", "rm", "dev", "--yes"], &[]).0, 0);
        assert_eq!(at(&["context", "ls", "-q"], &[]).1, "prod\n");
        std::fs::write(home.path().join("quorate/contexts.toml"), "curent = 1\n").unwrap();
        let (code, _, err) = at(&["ps"], &[]);
        assert!(code == 5 && err.contains("contexts.toml: ") && err.contains("`curent`"), "{err}");
    }

    #[test]
    fn a_reader_that_has_enough_is_no_mistake() {
        let mut child =
            command(&["completion", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(outcome(&output), (0, String::new(), String::new()));
    }

    #[test]
    fn where_no_manager_listens_the_error_says_who_was_tried_and_what_to_do() {
        let address = nowhere();
        let (code, out, err) = quorate(&["-m", &address, "ps", "--timeout", "500ms"]);
        assert_eq!((code, out.as_str()), (9, ""));
        assert!(err.starts_with("error: no "), "{err}");
        assert!(err.contains(&format!("{address}: cannot connect")), "{err}");
        assert!(err.contains("hint: "), "{err}");
    }

    #[test]
    fn errors_are_json_where_results_are() {
        let (code, out, err) = quorate(&["-m", &nowhere(), "job", "ls", "-o", "json", "--timeout", "500ms"]);
        assert_eq!((code, out.as_str()), (9, ""));
        let value: serde_json::Value = serde_json::from_str(&err).unwrap();
        assert_eq!(value["error"]["exitCode"], 9, "{err}");
    }

    #[test]
    fn cluster_status_shows_silence_instead_of_failing_to_ask() {
        let address = nowhere();
        let (code, out, err) = quorate(&["-m", &address, "cluster", "status"]);
        assert_eq!(code, 9);
        assert!(out.starts_with("no manager answers\n") && out.contains(&address), "{out}");
        assert!(err.starts_with("error: no manager answers"), "{err}");
    }

    #[test]
    fn mistakes_in_a_file_are_shown_before_anybody_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("web.yaml");
        std::fs::write(&file, "apiVersion: quorate/v1\nname: web\nimage: a\nreplica: 3\npriority: high\n")
            .unwrap();
        let name = file.to_str().unwrap();
        let (code, out, err) = quorate(&["run", name]);
        assert_eq!((code, out.as_str()), (5, ""));
        assert_eq!(
            err,
            format!(
                "error: {name}:4:1: unknown field \"replica\"; did you mean \"replicas\"?\n    |\n  4 | replica: 3\n    | ^^^^^^^\n\
                 error: {name}:5:11: priority: expected a whole number, found the text \"high\"\n    |\n  5 | priority: high\n    |           ^^^^\n"
            )
        );
    }

    #[test]
    fn a_job_may_come_from_standard_input() {
        let mut child = command(&["-m", &nowhere(), "run", "-", "--timeout", "300ms"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"apiVersion: v1\nname: web\nimage: a\n").unwrap();
        let (code, _, err) = outcome(&child.wait_with_output().unwrap());
        assert_eq!(code, 5);
        assert!(err.starts_with("error: <stdin>:1:13: apiVersion: \"v1\" is unknown"), "{err}");
    }

    #[test]
    fn arguments_that_contradict_are_refused() {
        let table: &[(&[&str], i32, &str)] = &[
            (&["scale", "web"], 2, "\"web\" is not JOB=REPLICAS"),
            (&["scale", "web=6", "default/web=7"], 2, "default/web is given twice"),
            (&["scale", "web=-1"], 2, "\"web=-1\" is not JOB=REPLICAS"),
            (&["scale", "a=1", "b=2", "--request-id", "x"], 2, "--request-id names one write"),
            (&["stop", "web", "--purge"], 2, "add --yes"),
            (&["job", "rm", "web"], 2, "add --yes"),
            (&["stop", "web", "--purge", "--no-input"], 2, "--no-input forbids to ask: add --yes"),
            (&["stop", "a", "b", "--etag", "1"], 2, "--etag is the state of one job"),
            (&["ps", "--consistency", "bounded"], 2, "needs --min-revision or --max-staleness"),
            (&["run", "x.yaml", "--etag", "1", "--force"], 2, "cannot be used with"),
            (&["ps", "Web"], 5, "only a-z, 0-9 and '-' are allowed"),
            (&["-n", "shop", "ps", "dev/web"], 5, "contradict each other"),
            (&["-m", "192.0.2.1:7420", "ps"], 5, "plain text"),
            (&["-m", ",", "ps"], 5, "no manager is given"),
            (&["run", "/nonexistent.yaml"], 5, "there is no such file"),
        ];
        for (args, expected, words) in table {
            let (code, out, err) = quorate(args);
            assert_eq!((code, out.as_str()), (*expected, ""), "{args:?}: {err}");
            assert!(err.contains(words), "{args:?}: {err}");
        }
    }
}
