//! The rendered text, which is YAML.

use serde::de::DeserializeOwned;

pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        // Further lines show the text, which may hold what only the agent is to read.
        format!("the rendered text is no template: {}", error.to_string().lines().next().unwrap_or_default())
    })
}
