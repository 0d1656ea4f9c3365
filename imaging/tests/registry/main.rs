//! Images of disks from the distribution's own registry (Debian's `docker-registry`), where another client has put them.

mod bench;
mod broken;
mod tokens;

use bench::{Bench, LOGIN, gzip, image};
use imaging::{Authorities, Kind};

/// What `oras push` writes.
const DISK: &str = "application/vnd.oci.image.layer.v1.tar";

#[tokio::test]
async fn a_disk_is_pulled_with_a_password_and_an_authority_of_its_own() {
    let test = "a_disk_is_pulled_with_a_password_and_an_authority_of_its_own";
    let Some(bench) = Bench::with_password(test).await else { return };
    let packed = gzip(&image());
    let digest = bench.push("disks/debian:raw.gz", &[(DISK, Some("debian.raw.gz"), &packed)]).await;

    for reference in
        ["disks/debian:raw.gz".to_owned(), format!("disks/debian@{digest}"), format!("disks/debian:x@{digest}")]
    {
        let pulled = bench.pull(&reference, LOGIN, bench.trusted()).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((pulled.title.as_str(), pulled.digest.as_str()), ("debian.raw.gz", digest.as_str()));
        assert_eq!(pulled.copied.unpacked, image().len() as u64);
        assert!(pulled.disk[..image().len()] == image(), "{reference}");
    }
    bench.pull("disks/debian:raw.gz", LOGIN, Authorities::NotAsked).await.expect("whoever it is");

    for (reference, login, authorities, kind, said) in [
        ("disks/debian:raw.gz", None, bench.trusted(), Kind::Unauthorized, "write REGISTRY_LOGIN"),
        (
            "disks/debian:raw.gz",
            Some(("metalplane", "wrong")),
            bench.trusted(),
            Kind::Unauthorized,
            "REGISTRY_LOGIN say is wrong",
        ),
        ("disks/debian:raw.gz", LOGIN, Authorities::Public, Kind::Unreachable, "CA_BUNDLE"),
        ("disks/debian:other", LOGIN, bench.trusted(), Kind::NotFound, "disks/debian:other: the registry has none"),
    ] {
        let error = bench.pull(reference, login, authorities).await.map(|pulled| pulled.title).expect_err(said);
        assert!(error.kind == kind && error.message.contains(said), "{error}");
        assert!(!error.message.contains("wrong\""), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_disk_is_refused_by_what_it_is_and_the_disk_is_left_alone() {
    let test = "what_is_no_disk_is_refused_by_what_it_is_and_the_disk_is_left_alone";
    let Some(bench) = Bench::with_password(test).await else { return };
    let (one, two) = (image(), gzip(&image()));
    bench.push("disks/two:1", &[(DISK, Some("one"), &one), (DISK, Some("two"), &two)]).await;
    bench.push("disks/container:1", &[(DISK, None, &one)]).await;
    bench.push("disks/other:1", &[("application/x-raw-disk-image", Some("disk.raw"), &one)]).await;
    bench.push("disks/none:1", &[]).await;
    bench
        .push_as("application/vnd.docker.distribution.manifest.v2+json", "disks/docker:1", &[(DISK, Some("one"), &one)])
        .await;
    for (reference, said) in [
        ("disks/two:1", "2 of its layers may be the image"),
        ("disks/container:1", "without a title"),
        ("disks/other:1", "application/x-raw-disk-image \"disk.raw\""),
        ("disks/none:1", "it has no layer"),
        ("disks/docker:1", "its manifest is application/vnd.docker.distribution.manifest.v2+json"),
    ] {
        let error = bench.pull(reference, LOGIN, bench.trusted()).await.map(|pulled| pulled.title).expect_err(said);
        assert!(error.kind == Kind::Invalid && error.message.contains(said), "{error}");
    }
    let among = [("application/spdx+json", Some("sbom.json"), &one[..100]), (DISK, Some("disk.raw"), &one[..])];
    bench.push("disks/among:1", &among).await;
    let pulled = bench.pull("disks/among:1", LOGIN, bench.trusted()).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(pulled.disk[..one.len()] == one && pulled.others.len() == 1 && pulled.others[0].contains("sbom.json"));
}
