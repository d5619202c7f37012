//! The Docker engine as tests see it, by its own client. A test that cannot have it fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quorate_agent::config::DockerConfig;
use quorate_agent::runtime::docker::DockerRuntime;
use quorate_agent::runtime::{Owner, Unit, Work};
use quorate_base::{Clock, ClusterId, Rng, TaskKind};
use quorate_model::{ContainerSpec, ImagePull, RuntimeKind};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{name, unit};

/// The image of `chaos/images.sh`.
pub const IMAGE: &str = "quorate-test/busybox:1";

/// Runs the engine's client.
pub fn docker(args: &[&str]) -> String {
    let output =
        Command::new("docker").args(args).output().expect("no docker client: `make test` installs one");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {}: {told}", args.join(" "));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A cluster of this test alone; its containers go when this goes.
pub struct Cluster(pub String);

impl Cluster {
    pub fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../chaos/images.sh");
        assert!(Command::new(script).status().unwrap().success(), "no test image");
        Self(ClusterId::generate(Clock::system().now(), &mut Rng::from_entropy()).to_string())
    }

    pub fn owner(&self) -> Owner {
        Owner { cluster: Arc::from(&*self.0), node: name("n1") }
    }

    /// `sh -c SCRIPT` in a container of the test image.
    pub fn shell(&self, task: u64, script: &str) -> Work {
        let spec = ContainerSpec {
            runtime: RuntimeKind::Docker,
            image: Some(IMAGE.to_owned()),
            pull: ImagePull::Never,
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            ..ContainerSpec::default()
        };
        let unit = Unit { owner: self.owner(), ..unit(task) };
        Work { unit, spec, volumes: BTreeMap::new(), ports: BTreeMap::new() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let filter = format!("label=quorate.cluster={}", self.0);
        let ids = docker(&["ps", "--all", "--quiet", "--filter", &filter]);
        let ids: Vec<&str> = ids.split_whitespace().collect();
        if !ids.is_empty() {
            docker(&[&["rm", "--force", "--volumes"], ids.as_slice()].concat());
        }
    }
}

pub fn engine() -> DockerRuntime {
    DockerRuntime::new(DockerConfig::default(), Clock::system())
}

/// An image on a registry of this test alone: enough of the registry's protocol for a pull.
pub struct Registry {
    pub address: String,
    pub image: String,
    contents: Arc<Contents>,
}

impl Registry {
    /// A registry with one image that the engine does not have.
    pub async fn start() -> Self {
        Self::start_behind(None).await
    }

    /// How often it was asked for the image by its tag.
    pub fn asked(&self) -> usize {
        self.contents.asked.load(Ordering::SeqCst)
    }

    /// The same, behind a login: `NAME:PASSWORD` in base64.
    pub async fn start_behind(login: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let marker = format!("{:032x}", u128::from_be_bytes(Rng::from_entropy().bytes()));
        std::fs::write(folder.path().join("marker"), &marker).unwrap();
        let source = format!("quorate-test/source-{marker}:1");
        let shell = |script: &str| {
            assert!(
                Command::new("sh")
                    .args(["-ec", script])
                    .current_dir(folder.path())
                    .status()
                    .unwrap()
                    .success()
            );
        };
        shell(&format!("tar -c marker | docker import --change 'CMD [\"/marker\"]' - {source} >/dev/null"));
        shell(&format!(
            "mkdir saved && docker save {source} | tar -x -C saved && docker rmi {source} >/dev/null"
        ));
        let login = login.map(str::to_owned);
        let contents = Contents { login, ..Contents::read(&folder.path().join("saved")) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tasks, contents) = (super::group(), Arc::new(contents));
        let served = Arc::clone(&contents);
        let connections = tasks.clone();
        tasks.spawn::<std::io::Error>(TaskKind::critical("registry"), async move {
            loop {
                let (stream, _) = listener.accept().await?;
                // One fails for certain: the engine tries TLS first.
                connections
                    .spawn(TaskKind::best_effort("connection"), connection(stream, Arc::clone(&served)));
            }
        });
        Self { image: format!("{address}/things/{marker}:1"), address, contents }
    }
}

/// What a registry has: one image.
struct Contents {
    login: Option<String>,
    asked: AtomicUsize,
    manifest: String,
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    /// From what `docker save` wrote. Its files are named by their digests, or say them, so nothing is hashed here.
    fn read(saved: &Path) -> Self {
        let json =
            |path: &Path| serde_json::from_slice::<serde_json::Value>(&std::fs::read(path).unwrap()).unwrap();
        let manifest = json(&saved.join("manifest.json"));
        let config_file = manifest[0]["Config"].as_str().unwrap();
        let config = std::fs::read(saved.join(config_file)).unwrap();
        let digest = format!("sha256:{}", config_file.trim_end_matches(".json").rsplit('/').next().unwrap());
        let layer = std::fs::read(saved.join(manifest[0]["Layers"][0].as_str().unwrap())).unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&config).unwrap();
        let layer_digest = parsed["rootfs"]["diff_ids"][0].as_str().unwrap().to_owned();
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.docker.container.image.v1+json", "size": config.len(), "digest": digest,
            },
            "layers": [{
                "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "size": layer.len(), "digest": layer_digest,
            }],
        });
        let blobs = [(digest, config), (layer_digest, layer)].into();
        Self { login: None, asked: AtomicUsize::new(0), manifest: manifest.to_string(), blobs }
    }

    fn answer(&self, path: &str) -> (u16, &'static str, Vec<u8>) {
        let missing = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#.to_vec();
        match path.rsplit('/').next().unwrap_or_default() {
            "" => (200, "application/json", b"{}".to_vec()),
            // By its tag, and then by its digest, which the engine computes.
            reference
                if path.contains("/manifests/") && (reference == "1" || reference.starts_with("sha256:")) =>
            {
                (200, MANIFEST, self.manifest.clone().into_bytes())
            }
            digest => match self.blobs.get(digest) {
                Some(blob) => (200, "application/octet-stream", blob.clone()),
                None => (404, "application/json", missing),
            },
        }
    }
}

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// One request of HTTP/1.1 after the other.
async fn connection(stream: TcpStream, contents: Arc<Contents>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    stream.read_line(&mut request).await?;
    let (mut header, mut login) = (String::new(), None);
    while stream.read_line(&mut header).await? > 2 {
        if let Some((name, value)) = header.split_once(": Basic ")
            && name.eq_ignore_ascii_case("authorization")
        {
            login = Some(value.trim().to_owned());
        }
        header.clear();
    }
    let mut words = request.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if path.ends_with("/manifests/1") {
        contents.asked.fetch_add(1, Ordering::SeqCst);
    }
    let welcome = contents.login.is_none() || contents.login == login;
    let (status, kind, body) = if welcome {
        contents.answer(path)
    } else {
        let text = br#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
        (401, "application/json", text.to_vec())
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\nWWW-Authenticate: Basic realm=\"test\"\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if method != "HEAD" {
        stream.write_all(&body).await?;
    }
    stream.shutdown().await?;
    // Until the other side has read it all.
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}
