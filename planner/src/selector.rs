//! Label selectors, as Kubernetes defines them: an empty one selects everything.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let value = labels.get(&requirement.key);
            let listed = value.is_some_and(|v| requirement.values.iter().flatten().any(|wanted| wanted == v));
            match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                // The API server refuses others where it validates; a selector that is not understood selects nothing.
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    fn one(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
        LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: key.into(),
                operator: operator.into(),
                values: Some(values.iter().map(|v| v.to_string()).collect()),
            }]),
            match_labels: None,
        }
    }

    #[test]
    fn selectors_select_as_kubernetes_does() {
        let labels = BTreeMap::from([("class".to_owned(), "gpu".to_owned())]);
        assert!(matches(&LabelSelector::default(), &labels));
        assert!(matches(&one("class", "In", &["cpu", "gpu"]), &labels));
        assert!(!matches(&one("class", "NotIn", &["gpu"]), &labels));
        assert!(matches(&one("rack", "NotIn", &["1"]), &labels));
        assert!(matches(&one("rack", "DoesNotExist", &[]), &labels));
        assert!(!matches(&one("rack", "Exists", &[]), &labels));
        assert!(!matches(&one("class", "Near", &["gpu"]), &labels));
        let exact = |value: &str| LabelSelector {
            match_labels: Some([("class".to_owned(), value.to_owned())].into()),
            match_expressions: None,
        };
        assert!(matches(&exact("gpu"), &labels));
        assert!(!matches(&exact("cpu"), &labels));
    }
}
