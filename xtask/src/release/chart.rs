//! A chart as one file, as `helm package` writes it, with the references of the release's images in its values and with no time of
//! the day in it, which helm would write.

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

/// Where a chart has its values; the definitions' chart has none.
const VALUES: &str = "values.yaml";

/// Writes the chart of the folder to `out`.
pub(super) fn write(chart: &Path, references: &BTreeMap<String, String>, out: &Path) -> Result<()> {
    let folder = out.parent().context("a chart's file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let file = File::create(out).with_context(|| format!("create {}", out.display()))?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let name = chart.file_name().context("a chart's folder has a name")?;
    for path in super::files(chart)? {
        let inside = Path::new(name).join(path.strip_prefix(chart).context("a file of the chart")?);
        let mut content = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        if inside == Path::new(name).join(VALUES) {
            content = with_images(&content, references)?;
        }
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        archive
            .append_data(&mut header, &inside, content.as_bytes())
            .with_context(|| format!("write {} to {}", inside.display(), out.display()))?;
    }
    archive.into_inner().and_then(GzEncoder::finish).with_context(|| format!("write {}", out.display()))?;
    Ok(())
}

/// Every reference in the place of the one that stands below `images`; comments and order stay.
fn with_images(values: &str, references: &BTreeMap<String, String>) -> Result<String> {
    let mut left = references.clone();
    let mut inside = false;
    let mut lines = Vec::new();
    for line in values.lines() {
        if !line.starts_with([' ', '#']) && !line.is_empty() {
            inside = line == "images:";
        }
        let key = line.strip_prefix("  ").and_then(|rest| rest.split_once(": ")).map(|(key, _)| key);
        let reference = key.filter(|_| inside).and_then(|key| left.remove(key).map(|reference| (key, reference)));
        lines.push(reference.map_or_else(|| line.to_owned(), |(key, reference)| format!("  {key}: {reference}")));
    }
    ensure!(
        left.is_empty(),
        "the chart's {VALUES} has no images.{}",
        left.into_keys().collect::<Vec<_>>().join(", no images.")
    );
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn references() -> BTreeMap<String, String> {
        BTreeMap::from([("controller".to_owned(), "metalplane.io/controller:1.2.3-0123456789ab".to_owned())])
    }

    #[test]
    fn references_are_written_below_images_alone() {
        let values = "# Kept.\nimages:\n  pullPolicy: Always\n  controller: x:1\n\ncontroller:\n  controller: y\n";
        let written = with_images(values, &references()).expect("written");
        let wanted = values.replace("x:1", "metalplane.io/controller:1.2.3-0123456789ab");
        assert_eq!(written, wanted);
        let error = with_images("images:\n  agent: x:1\n", &references()).expect_err("nothing to replace");
        assert_eq!(error.to_string(), "the chart's values.yaml has no images.controller");
    }

    #[test]
    fn a_chart_is_the_same_file_each_time_and_names_the_images() {
        let folder = tempfile::tempdir().expect("a folder");
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/metalplane");
        let chart = chart.canonicalize().expect("the chart");
        let files: Vec<_> = (0..2).map(|round| folder.path().join(format!("{round}.tgz"))).collect();
        for file in &files {
            write(&chart, &references(), file).expect("written");
        }
        let read = |file| fs::read(file).expect("read");
        assert_eq!(read(&files[0]), read(&files[1]));
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&files[0]).expect("opened")));
        let mut found = BTreeMap::new();
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("an entry");
            assert_eq!(entry.header().mtime().expect("a time"), 0);
            let name = entry.path().expect("a path").display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            found.insert(name, text);
        }
        assert!(found["metalplane/Chart.yaml"].contains("name: metalplane\n"));
        assert!(found["metalplane/values.yaml"].contains("controller: metalplane.io/controller:1.2.3-0123456789ab\n"));
        assert_eq!(found.len(), super::super::files(&chart).expect("files").len());
    }
}
