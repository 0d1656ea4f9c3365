//! Against the distribution's own registry, with TLS and a password.

use super::*;
use sandbox::architecture::Architecture;
use sandbox::oci::Description;
use sandbox::registry::{self, Registry};
use tokio::process::Child;

struct Bench {
    folder: tempfile::TempDir,
    registry: Registry,
    _process: Child,
}

impl Bench {
    async fn start(test: &str) -> Option<Self> {
        if let Err(error) = registry::program().await {
            eprintln!("SKIP {test}: {error:#}");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
        let registry = Registry::prepare(&folder.path().join("registry"), port).expect("prepared");
        let process = registry.start().await.expect("the registry starts");
        Some(Self { folder, registry, _process: process })
    }

    /// An image file of one program with this content.
    fn image(&self, name: &str, content: &str) {
        let program = self.folder.path().join("program");
        fs::write(&program, content).expect("written");
        let reference = format!("metalplane.io/{name}:1");
        let description = Description { reference: &reference, entrypoint: &["/program"], ..Description::default() };
        let tar = self.images().join(format!("{name}.tar"));
        oci::write_image(&tar, description, &[(&program, "/program", 0o755)]).expect("an image");
    }

    fn images(&self) -> PathBuf {
        self.folder.path().join("images")
    }

    fn options(&self) -> Options {
        Options {
            registry: format!("{}/metal", self.registry.address),
            images: Some(self.images()),
            ca_file: Some(self.registry.ca_file.clone()),
            docker_config: Some(self.login(registry::USER, registry::PASSWORD)),
            plain_http: false,
        }
    }

    /// As `docker login` writes it.
    fn login(&self, user: &str, password: &str) -> PathBuf {
        use base64::Engine;
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let config = serde_json::json!({"auths": {self.registry.address.to_string(): {"auth": auth}}});
        let file = self.folder.path().join(format!("{user}.json"));
        fs::write(&file, config.to_string()).expect("written");
        file
    }

    async fn pushed(&self, name: &str) -> Done {
        let target = Target::of(&self.options()).expect("a target");
        let tar = self.images().join(format!("{name}.tar"));
        let content = oci::read_content(&tar).expect("an image");
        let reference = target.reference(&content.reference).expect("a reference");
        target.image(&tar, &content, &reference).await.unwrap_or_else(|error| panic!("{error:#}"))
    }
}

#[tokio::test]
async fn a_real_registry_gets_what_it_lacks_and_gives_it_back() {
    let Some(bench) = Bench::start("a_real_registry_gets_what_it_lacks_and_gives_it_back").await else { return };
    bench.image("one", &"1".repeat(3 << 20));
    let first = bench.pushed("one").await;
    assert!(matches!(first, Done::Pushed { blobs: 2, bytes } if bytes > 3 << 20), "{first:?}");
    assert_eq!(bench.pushed("one").await, Done::Present);

    // A push that was cut off behind the blobs: the repository has them, and no manifest by this tag.
    let target = Target::of(&bench.options()).expect("a target");
    let content = oci::read_content(&bench.images().join("one.tar")).expect("an image");
    let another: Reference = format!("{}/metal/one:2", bench.registry.address).parse().expect("a reference");
    let done = target.image(&bench.images().join("one.tar"), &content, &another).await.expect("pushed");
    assert_eq!(done, Done::Pushed { blobs: 0, bytes: 0 });

    // The same tag with another program: what was pushed last counts.
    bench.image("one", "another");
    assert!(matches!(bench.pushed("one").await, Done::Pushed { blobs: 2, .. }));
    push(&bench.options(), &bench.images()).await.expect("a whole folder");
    let (reference, auth) = (target.reference("metalplane.io/one:1").expect("a reference"), target.auth());
    let accepted = vec!["application/vnd.oci.image.layer.v1.tar"];
    let pulled = target.client.pull(&reference, &auth, accepted).await.expect("pulled");
    let content = oci::read_content(&bench.images().join("one.tar")).expect("an image");
    assert_eq!(pulled.digest.as_ref(), content.manifests.last().map(|manifest| &manifest.digest));
    assert!(pulled.layers[0].data.windows(7).any(|window| window == b"another"));
}

#[tokio::test]
async fn a_real_registry_gives_each_architecture_its_own() {
    let Some(bench) = Bench::start("a_real_registry_gives_each_architecture_its_own").await else { return };
    let programs = Architecture::ALL.map(|architecture| {
        let program = bench.folder.path().join(architecture.name());
        fs::write(&program, format!("a program for {architecture}")).expect("written");
        program
    });
    let files = [0, 1].map(|at: usize| [(programs[at].as_path(), "/program", 0o755)]);
    let variants = [(Architecture::ALL[0], &files[0][..]), (Architecture::ALL[1], &files[1][..])];
    let tar = bench.images().join("both.tar");
    let description = Description { reference: "metalplane.io/both:1", ..Description::default() };
    oci::write_images(&tar, description, &variants).expect("an image");
    let done = bench.pushed("both").await;
    assert!(matches!(done, Done::Pushed { blobs: 4, .. }), "{done:?}");
    assert_eq!(bench.pushed("both").await, Done::Present);

    let target = Target::of(&bench.options()).expect("a target");
    let (reference, auth) = (target.reference("metalplane.io/both:1").expect("a reference"), target.auth());
    let (manifest, digest) = target.client.pull_manifest(&reference, &auth).await.expect("pulled");
    let oci_client::manifest::OciManifest::ImageIndex(index) = manifest else { panic!("no index: {manifest:?}") };
    assert_eq!(digest, oci::read_name(&tar).expect("a name").digest);
    let platforms: Vec<String> =
        index.manifests.iter().flat_map(|m| &m.platform).map(|p| p.architecture.to_string()).collect();
    assert_eq!(platforms, ["amd64", "arm64"]);
    // By digest: of this one alone, its own program.
    let arm64 = reference.clone_with_digest(index.manifests[1].digest.clone());
    let accepted = vec!["application/vnd.oci.image.layer.v1.tar"];
    let pulled = target.client.pull(&arm64, &auth, accepted).await.expect("pulled");
    assert!(String::from_utf8_lossy(&pulled.layers[0].data).contains("a program for arm64"));
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let Some(bench) = Bench::start("a_refusal_says_what_to_do").await else { return };
    bench.image("one", "1");
    let refused = async |options: Options, said: &str| {
        let error = match push(&options, &bench.images()).await {
            Err(error) => format!("{error:#}"),
            Ok(()) => panic!("it is taken, without: {said}"),
        };
        assert!(error.contains(said), "{error}");
        assert!(!error.contains(registry::PASSWORD), "{error}");
    };
    let wrong = Some(bench.login("eve", "battery-staple"));
    refused(Options { docker_config: wrong, ..bench.options() }, "refuses user \"eve\" with the password of").await;
    let none = bench.folder.path().join("none.json");
    fs::write(&none, "{}").expect("written");
    refused(Options { docker_config: Some(none), ..bench.options() }, "run `docker login 127.0.0.1:").await;

    refused(Options { ca_file: None, ..bench.options() }, "name it by --ca-file").await;
    let other = Registry::prepare(&bench.folder.path().join("other"), bench.registry.address).expect("prepared");
    refused(Options { ca_file: Some(other.ca_file), ..bench.options() }, "name it by --ca-file").await;
    let key = bench.folder.path().join("registry/registry.key");
    refused(Options { ca_file: Some(key), ..bench.options() }, "has a private key").await;
    let by_name = format!("localhost:{}/metal", bench.registry.address.port());
    let login = bench.folder.path().join("any.json");
    fs::write(&login, "{}").expect("written");
    let by_name = Options { registry: by_name, docker_config: Some(login), ..bench.options() };
    refused(by_name, "is for 127.0.0.1, not for localhost").await;

    let nobody = Options { registry: "127.0.0.1:1/metal".to_owned(), ..bench.options() };
    refused(nobody, "cannot be reached").await;
    let scheme = Options { registry: format!("https://{}", bench.registry.address), ..bench.options() };
    refused(scheme, "without a scheme").await;
    let capitals = Options { registry: format!("{}/Metal", bench.registry.address), ..bench.options() };
    refused(capitals, "in lower case").await;
}

#[tokio::test]
async fn a_server_without_tls_is_told_apart() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            use tokio::io::AsyncWriteExt;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let (program, tar) = (folder.path().join("program"), folder.path().join("one.tar"));
    fs::write(&program, "1").expect("written");
    let description =
        Description { reference: "metalplane.io/one:1", entrypoint: &["/program"], ..Description::default() };
    oci::write_image(&tar, description, &[(&program, "/program", 0o755)]).expect("an image");
    let (registry, images) = (address.to_string(), Some(folder.path().to_owned()));
    let options = Options { registry, images, ca_file: None, docker_config: None, plain_http: false };
    let error = push(&options, folder.path()).await.expect_err("no TLS").to_string();
    assert!(error.contains("--plain-http"), "{error}");
}

#[test]
fn a_reference_moves_as_the_chart_moves_it() {
    let options = Options {
        registry: "r.example:5000/metal/".to_owned(),
        images: None,
        ca_file: None,
        docker_config: None,
        plain_http: true,
    };
    let target = Target::of(&options).expect("a target");
    for (from, to) in [
        ("metalplane.io/controller:1", "r.example:5000/metal/controller:1"),
        ("localhost/a/b:2", "r.example:5000/metal/a/b:2"),
        ("csi/driver:3", "r.example:5000/metal/csi/driver:3"),
        ("pause:4", "r.example:5000/metal/pause:4"),
    ] {
        assert_eq!(target.reference(from).expect("a reference").to_string(), to);
    }
}
