//! What the engine's errors mean for a task.

use bollard::errors::Error;

use crate::step::{Fault, FaultClass};

/// What was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble<'a> {
    /// To reach the engine.
    Connect,
    /// To look at a container.
    Inspect,
    /// To list containers.
    List,
    /// To get this image.
    Pull(&'a str),
    /// To create a container of this image.
    Create(&'a str),
    /// To start a container.
    Start,
    /// To signal a container.
    Stop,
    /// To remove a container.
    Remove,
}

/// Whether the engine answered with that HTTP status.
pub(super) fn is_status(error: &Error, status: u16) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code, .. } if *status_code == status)
}

impl Trouble<'_> {
    /// The fault that `error` is.
    pub(super) fn fault(self, error: &Error) -> Fault {
        match error {
            Error::DockerResponseServerError { status_code, message } => self.answered(*status_code, message),
            Error::DockerStreamError { error } => self.answered(500, error),
            other => Fault::unavailable(format!("the Docker engine does not answer: {}", innermost(other))),
        }
    }

    /// The engine answered with an error.
    fn answered(self, status: u16, message: &str) -> Fault {
        let lower = message.to_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        if status == 503 || has(&["shutdown in progress", "cannot connect to containerd"]) {
            return Fault::unavailable(format!("the Docker engine is not ready: {}", short(message)));
        }
        if has(&["no space left on device"]) {
            return Fault::transient(format!("{}: the disk is full: {}", self.what(), short(message)));
        }
        match self {
            Self::Pull(image) => pull(image, status, message),
            Self::Create(image) if status == 404 && has(&["no such image"]) => {
                Fault::permanent(format!("image {image} is not on this node"))
            }
            Self::Start if has(&["port is already allocated", "address already in use"]) => {
                let port = taken_port(message)
                    .map_or_else(|| "a host port".to_owned(), |p| format!("host port {p}"));
                Fault::transient(format!("cannot start: {port} is taken by something else on this node"))
            }
            Self::Start => {
                let lasting = status == 400
                    || has(&[
                        "no such file or directory",
                        "executable file not found",
                        "permission denied",
                        "not a directory",
                    ]);
                let class = if lasting { FaultClass::Permanent } else { FaultClass::Transient };
                Fault { class, message: format!("cannot start: {}", short(message)) }
            }
            // The engine refuses what it will always refuse.
            Self::Create(_) if status < 500 => {
                Fault::permanent(format!("{}: {}", self.what(), short(message)))
            }
            _ => Fault::transient(format!("{}: {}", self.what(), short(message))),
        }
    }

    fn what(self) -> String {
        match self {
            Self::Connect => "cannot reach the Docker engine".to_owned(),
            Self::Inspect => "cannot look at the container".to_owned(),
            Self::List => "cannot list containers".to_owned(),
            Self::Pull(image) => format!("cannot pull {image}"),
            Self::Create(_) => "cannot create the container".to_owned(),
            Self::Start => "cannot start".to_owned(),
            Self::Stop => "cannot stop the container".to_owned(),
            Self::Remove => "cannot remove the container".to_owned(),
        }
    }
}

/// Whether a pull failed for want of a login.
pub(super) fn wants_login(fault: &Fault) -> bool {
    fault.message.contains("its registry wants a login") || fault.message.contains("refuses the login")
}

/// Registries tell by words alone, and not all by the same.
fn pull(image: &str, status: u16, message: &str) -> Fault {
    let lower = message.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    let text = short(message);
    if has(&["manifest verification failed", "digest mismatch", "unexpected digest", "does not match digest"])
    {
        return Fault::transient(format!(
            "image {image}: its registry sends other contents than that digest: {text}"
        ));
    }
    if has(&["unauthorized", "authentication required", "no basic auth", "incorrect username or password"]) {
        return Fault::permanent(format!(
            "the registry of image {image} refuses the login, or wants one: {text}"
        ));
    }
    if has(&["access denied", "access forbidden", "denied:"]) {
        return Fault::permanent(format!(
            "image {image}: it does not exist, or its registry wants a login: {text}"
        ));
    }
    if has(&["manifest unknown", "not found", "does not exist", "no matching manifest", "name unknown"]) {
        return Fault::permanent(format!("image {image} does not exist: {text}"));
    }
    if status == 400 || has(&["invalid reference format", "invalid repository name"]) {
        return Fault::permanent(format!("{image:?} is no image reference: {text}"));
    }
    Fault::transient(format!("cannot reach the registry of image {image}: {text}"))
}

/// The host port that the engine could not bind, as in `80` or `53/udp`. Its versions word it in different ways, each
/// with the address first, and name the endpoint by a long number that tells users nothing.
fn taken_port(message: &str) -> Option<String> {
    let starts = ["host port for ", "host port ", "Bind for ", "listen tcp4 ", "listen tcp6 ", "listen tcp "];
    let udp = ["listen udp4 ", "listen udp6 ", "listen udp "];
    let after = |start: &&str| message.find(*start).and_then(|at| message.get(at + start.len()..));
    let address = starts.iter().chain(&udp).find_map(after)?.split_whitespace().next()?;
    // An IPv6 address has colons of its own; behind the host's may follow the container's.
    let rest = match address.strip_prefix('[') {
        Some(inner) => inner.split_once("]:")?.1,
        None if address.starts_with("::") => address.trim_start_matches(':'),
        None => address.split_once(':')?.1,
    };
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let udp = address.contains("/udp") || udp.iter().any(|start| message.contains(start));
    (!port.is_empty()).then(|| if udp { format!("{port}/udp") } else { port })
}

/// The engine wraps messages in those of its parts; the last part says what went wrong.
fn short(message: &str) -> &str {
    let message = message.trim().trim_end_matches(": unknown");
    ["exec: ", "OCI runtime create failed: ", "error response from daemon: ", "Error response from daemon: "]
        .into_iter()
        .find_map(|wrapper| message.rfind(wrapper).and_then(|at| message.get(at + wrapper.len()..)))
        .unwrap_or(message)
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_engines_are_classified() {
        use FaultClass::*;
        let runc = "failed to create shim: OCI runtime create failed: container_linux.go:380: starting container process \
                    caused: exec: \"/bin/nope\": stat /bin/nope: no such file or directory: unknown";
        let port = "driver failed programming external connectivity on endpoint x: Bind for 0.0.0.0:80 failed: port is \
                    already allocated";
        let bind = "invalid mount config for type \"bind\": bind source path does not exist: /nope";
        let table = [
            (
                Trouble::Start,
                400,
                runc,
                Permanent,
                "cannot start: \"/bin/nope\": stat /bin/nope: no such file or directory",
            ),
            (
                Trouble::Start,
                500,
                port,
                Transient,
                "cannot start: host port 80 is taken by something else on this node",
            ),
            (Trouble::Start, 500, "something", Transient, "cannot start: something"),
            (Trouble::Create("a"), 400, bind, Permanent, "cannot create the container: invalid mount config"),
            (Trouble::Create("a"), 404, "No such image: a", Permanent, "image a is not on this node"),
            (
                Trouble::Create("a"),
                500,
                "no space left on device",
                Transient,
                "cannot create the container: the disk is full",
            ),
            (
                Trouble::Remove,
                409,
                "removal already in progress",
                Transient,
                "cannot remove the container: removal",
            ),
            (Trouble::Inspect, 503, "shutdown in progress", Unavailable, "the Docker engine is not ready"),
        ];
        for (trouble, status_code, message, class, text) in table {
            let fault =
                trouble.fault(&Error::DockerResponseServerError { status_code, message: message.to_owned() });
            assert_eq!(fault.class, class, "{message}");
            assert!(fault.message.starts_with(text), "{}", fault.message);
        }
    }

    #[test]
    fn a_taken_port_is_named_in_all_the_engines_wordings() {
        let endpoint = "driver failed programming external connectivity on endpoint web \
                        (9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08): ";
        for (text, port) in [
            ("Bind for 0.0.0.0:8080 failed: port is already allocated", "host port 8080"),
            ("Bind for :::8080 failed: port is already allocated", "host port 8080"),
            (
                "failed to bind host port for 0.0.0.0:8080:172.17.0.2:80/tcp: address already in use",
                "host port 8080",
            ),
            ("failed to bind host port 0.0.0.0:53/udp: address already in use", "host port 53/udp"),
            (
                "failed to bind host port for [::]:8080:[fd00::2]:80/tcp: address already in use",
                "host port 8080",
            ),
            (
                "Error starting userland proxy: listen tcp4 0.0.0.0:80: bind: address already in use",
                "host port 80",
            ),
            (
                "Error starting userland proxy: listen udp4 0.0.0.0:53: bind: address already in use",
                "host port 53/udp",
            ),
            ("address already in use", "a host port"),
        ] {
            let message = format!("{endpoint}{text}");
            let fault = Trouble::Start.fault(&Error::DockerResponseServerError { status_code: 500, message });
            assert_eq!(
                fault.message,
                format!("cannot start: {port} is taken by something else on this node"),
                "{text}"
            );
        }
    }

    #[test]
    fn answers_of_registries_are_classified() {
        use FaultClass::*;
        let denied = "pull access denied for nope, repository does not exist or may require 'docker login': denied: \
                      requested access to the resource is denied";
        let table = [
            (
                404,
                denied,
                Permanent,
                "image a:1: it does not exist, or its registry wants a login: pull access denied",
            ),
            (
                500,
                "unauthorized: authentication required",
                Permanent,
                "the registry of image a:1 refuses the login, or wants one: unauthorized",
            ),
            (
                500,
                "manifest verification failed for digest sha256:00",
                Transient,
                "image a:1: its registry sends other contents than that digest",
            ),
            (
                404,
                "manifest for a:1 not found: manifest unknown",
                Permanent,
                "image a:1 does not exist: manifest for",
            ),
            (400, "invalid reference format", Permanent, "\"a:1\" is no image reference"),
            (
                500,
                "dial tcp 127.0.0.1:5000: connect: connection refused",
                Transient,
                "cannot reach the registry",
            ),
            (
                500,
                "Get \"https://r/v2/\": net/http: TLS handshake timeout",
                Transient,
                "cannot reach the registry",
            ),
            (500, "write /x: no space left on device", Transient, "cannot pull a:1: the disk is full"),
        ];
        for (status_code, message, class, text) in table {
            let error = Error::DockerResponseServerError { status_code, message: message.to_owned() };
            let fault = Trouble::Pull("a:1").fault(&error);
            assert_eq!(fault.class, class, "{message}");
            assert!(fault.message.starts_with(text), "{}", fault.message);
        }
    }

    #[test]
    fn silence_says_nothing_of_the_task() {
        let fault = Trouble::Start.fault(&Error::RequestTimeoutError);
        assert_eq!(fault, Fault::unavailable("the Docker engine does not answer: Timeout error"));
    }
}
