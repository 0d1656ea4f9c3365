//! The text of a Template for one server. `gotmpl` is the engine; its one door is here.

use super::document::{self, Rendered};
use super::references::References;
use super::{MAX_ITERATIONS, MAX_RENDERED, data, functions, sound, values};
use api::tinkerbell::Hardware;
use api::tinkerbell::workflow::Workflow;
use gotmpl::{MissingKey, Template};
use serde_json::Value;
use std::fmt;

/// `Err`: why not, for the Workflow's condition. It never holds more of the text than the place of the fault.
pub fn render(text: &str, workflow: &Workflow, hardware: Option<&Hardware>) -> Result<Rendered, String> {
    with(text, workflow, hardware, &References::default())
}

/// The same with what the Hardware's references lead to.
pub(super) fn with(
    text: &str,
    workflow: &Workflow,
    hardware: Option<&Hardware>,
    references: &References<Value>,
) -> Result<Rendered, String> {
    let yaml = text_of(text, &data::of(workflow, hardware, references))?;
    document::read(&yaml, workflow.metadata.uid.as_deref().unwrap_or_default())
}

/// What a text renders to with any data, whether it is a Template's or not: the engine without what is read from it.
pub fn plain(text: &str, data: &Value) -> Result<String, String> {
    text_of(text, &values::value(data))
}

pub(super) fn text_of(text: &str, data: &gotmpl::Value) -> Result<String, String> {
    let template = Template::new("template").missing_key(MissingKey::Error).max_range_iters(MAX_ITERATIONS);
    let template = functions::add(template).parse(text).map_err(|error| error.to_string())?;
    sound::check(text, &functions::is_served)?;
    let mut bounded = Bounded(String::new());
    let done = template.execute_fmt(&mut bounded, data);
    match done {
        Ok(()) => Ok(bounded.0),
        Err(_) if bounded.0.len() > MAX_RENDERED => {
            Err(format!("the rendered text is longer than {} KiB", MAX_RENDERED >> 10))
        }
        Err(error) => Err(error.to_string()),
    }
}

struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_RENDERED {
            // One more byte than fits says why the text ends here.
            self.0 = " ".repeat(MAX_RENDERED + 1);
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
