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
    fn completion_scripts_know_the_verbs() {
        for shell in ["bash", "zsh", "fish"] {
            let (code, out, err) = quorate(&["completion", shell]);
            assert_eq!((code, err.as_str()), (0, ""), "{shell}");
            assert!(out.contains("scale") && out.contains("consistency"), "{shell}");
        }
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
        assert!(err.starts_with("error: no manager leads"), "{err}");
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
