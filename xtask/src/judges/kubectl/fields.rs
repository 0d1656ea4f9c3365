//! `kubectl explain`: every field of every kind has a sentence. The paths are read from the definitions themselves.

use super::session::Session;
use anyhow::{Context, Result};
use serde_json::Value;

/// Fields that every kind has, described by Kubernetes.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn run(session: &mut Session) -> Result<()> {
    let said = session.say(&["get", "crd", "-o", "json"], None);
    let list: Value = serde_json::from_str(&said.out).context("read the definitions")?;
    for crd in list["items"].as_array().into_iter().flatten() {
        let spec = &crd["spec"];
        let plural = spec["names"]["plural"].as_str().unwrap_or_default();
        let group = spec["group"].as_str().unwrap_or_default();
        for version in spec["versions"].as_array().into_iter().flatten() {
            let api = format!("{group}/{}", version["name"].as_str().unwrap_or_default());
            let mut paths = Vec::new();
            below(&version["schema"]["openAPIV3Schema"], plural, true, &mut paths);
            for (path, fields) in paths {
                let said = session.say(&["explain", &path, &format!("--api-version={api}")], None);
                let result = match said.code {
                    0 => described(&said.out, &fields),
                    _ => Err(said.err.trim().to_owned()),
                };
                session.step(&format!("explain {path} ({} fields)", fields.len()), result);
            }
        }
    }
    Ok(())
}

/// Every path that has fields below it, and their names.
fn below(schema: &Value, path: &str, root: bool, paths: &mut Vec<(String, Vec<String>)>) {
    let inner = [&schema["items"], &schema["additionalProperties"]].into_iter().find(|inner| inner.is_object());
    let Some(properties) = schema["properties"].as_object() else {
        if let Some(inner) = inner {
            below(inner, path, root, paths);
        }
        return;
    };
    let own = properties.keys().filter(|name| !(root && COMMON.contains(&name.as_str())));
    let own: Vec<String> = own.cloned().collect();
    for name in &own {
        below(&properties[name], &format!("{path}.{name}"), false, paths);
    }
    paths.push((path.to_owned(), own));
}

/// A field is a line that begins with two spaces, its name and its type; its description is indented below.
fn described(text: &str, fields: &[String]) -> Result<(), String> {
    let (head, list) = text.split_once("\nFIELDS:\n").unwrap_or((text, ""));
    if blank(head.split_once("DESCRIPTION:").map(|(_, description)| description).unwrap_or_default()) {
        return Err("it has no description".to_owned());
    }
    for field in fields {
        let begin = format!("  {field}\t");
        let after = list.split('\n').skip_while(|line| !line.starts_with(&begin)).skip(1);
        let description: Vec<&str> = after.take_while(|line| !line.contains('\t')).collect();
        let sentence =
            description.iter().filter(|line| line.starts_with("    ")).copied().collect::<Vec<_>>().join(" ");
        if blank(&sentence) {
            return Err(format!("'{field}' has no description"));
        }
    }
    Ok(())
}

fn blank(text: &str) -> bool {
    matches!(text.trim(), "" | "<empty>" | "<no description>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_without_a_sentence_is_found() {
        let text = "KIND: X\n\nDESCRIPTION:\n    It is.\n\nFIELDS:\n  a\t<string>\n  enum: A, B\n    About a.\n\n  b\t<string>\n    <no description>\n\n";
        assert_eq!(described(text, &["a".to_owned()]), Ok(()));
        assert!(described(text, &["b".to_owned()]).is_err());
        assert!(described(text, &["c".to_owned()]).is_err(), "a field that is not listed");
        assert!(described("DESCRIPTION:\n    <empty>\n\nFIELDS:\n", &[]).is_err());
    }

    #[test]
    fn paths_go_through_lists_and_maps() {
        let schema = json!({"properties": {"kind": {}, "spec": {"properties": {
            "list": {"items": {"properties": {"x": {}}}}, "map": {"additionalProperties": {"type": "string"}}}}}});
        let mut paths = Vec::new();
        below(&schema, "things", true, &mut paths);
        let names: Vec<&str> = paths.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["things.spec.list", "things.spec", "things"]);
    }
}
