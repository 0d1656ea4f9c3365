//! What a request is about: `/apis/GROUP/VERSION/[namespaces/NS/]PLURAL[/NAME[/SUBRESOURCE]]?QUERY`.

use std::collections::BTreeMap;

/// One collection or one object in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// `PLURAL`, or `GROUP/PLURAL` outside the core group.
    pub resource: String,
    /// Empty for cluster-scoped objects, and for a collection over all namespaces.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
}

impl Id {
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.resource, self.namespace, self.name)
    }
}

#[derive(Debug, Clone)]
pub struct Target {
    pub id: Id,
    pub subresource: Option<String>,
    pub query: BTreeMap<String, String>,
}

/// `None`: no such path.
pub fn parse(uri: &http::Uri) -> Option<Target> {
    let mut parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let group = match *parts.first()? {
        "api" => {
            parts.drain(..2);
            None
        }
        "apis" => {
            let group = parts.get(1)?.to_string();
            parts.drain(..3);
            Some(group)
        }
        _ => return None,
    };
    let namespace = match parts.as_slice() {
        ["namespaces", namespace, _, ..] => {
            let namespace = namespace.to_string();
            parts.drain(..2);
            namespace
        }
        _ => String::new(),
    };
    let plural = parts.first()?;
    let resource = group.map_or_else(|| plural.to_string(), |group| format!("{group}/{plural}"));
    let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    Some(Target {
        id: Id::new(&resource, &namespace, parts.get(1).unwrap_or(&"")),
        subresource: parts.get(2).map(|part| part.to_string()),
        query,
    })
}

/// Selects by `labelSelector` and `fieldSelector`, of which only equality is understood, and that a label is there.
pub fn selects(query: &BTreeMap<String, String>, object: &serde_json::Value) -> bool {
    let terms = |key: &str| {
        let text = query.get(key).cloned().unwrap_or_default();
        text.split(',').filter(|term| !term.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let value = |pointer: &str| object.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default();
    let fields = terms("fieldSelector").iter().all(|term| {
        let (field, wanted) = term.split_once('=').expect("field selectors are equalities");
        value(&format!("/{}", field.replace('.', "/"))) == wanted.trim_start_matches('=')
    });
    let labels = terms("labelSelector").iter().all(|term| {
        let there = |label: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(label)?.as_str());
        match term.split_once('=') {
            Some((label, wanted)) => there(label) == Some(wanted.trim_start_matches('=')),
            None => there(term).is_some(),
        }
    });
    fields && labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(path: &str) -> (Id, Option<String>) {
        let target = parse(&path.parse().expect("a URI")).expect("a path");
        (target.id, target.subresource)
    }

    #[test]
    fn paths_name_collections_objects_and_subresources() {
        assert_eq!(id("/api/v1/namespaces/a"), (Id::new("namespaces", "", "a"), None));
        assert_eq!(id("/api/v1/namespaces/a/secrets?watch=1"), (Id::new("secrets", "a", ""), None));
        assert_eq!(id("/apis/metalplane.io/v1alpha1/dpus"), (Id::new("metalplane.io/dpus", "", ""), None));
        let vnic = "/apis/metalplane.io/v1alpha1/namespaces/n/vnics/v/status";
        assert_eq!(id(vnic), (Id::new("metalplane.io/vnics", "n", "v"), Some("status".into())));
        assert!(parse(&"/healthz".parse().expect("a URI")).is_none());
    }
}
