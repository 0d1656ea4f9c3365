//! Errors as Redfish words them: messages of the Base registry.

use axum::http::{HeaderName, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::response;

const REGISTRY: &str = "Base.1.18";

/// An answer that says no.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    message: &'static str,
    arguments: Vec<String>,
    text: String,
    resolution: &'static str,
    extra: Option<Box<(HeaderName, &'static str)>>,
}

impl Problem {
    fn new(
        status: StatusCode,
        message: &'static str,
        arguments: &[&str],
        text: String,
        resolution: &'static str,
    ) -> Problem {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Problem { status, message, arguments, text, resolution, extra: None }
    }

    pub fn with_header(mut self, name: HeaderName, value: &'static str) -> Problem {
        self.extra = Some(Box::new((name, value)));
        self
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn missing(path: &str) -> Problem {
        let text = format!("The resource at the URI '{path}' was not found.");
        Problem::new(StatusCode::NOT_FOUND, "ResourceMissingAtURI", &[path], text, "Use a URI that the service names.")
    }

    pub fn wrong_method() -> Problem {
        let text = "The operation is not allowed on this resource.".to_owned();
        Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "OperationNotAllowed",
            &[],
            text,
            "Use a method of the Allow header.",
        )
    }

    pub fn temporarily_unavailable() -> Problem {
        let text = "The service is temporarily unavailable. Retry in 1 seconds.".to_owned();
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Problem::new(status, "ServiceTemporarilyUnavailable", &["1"], text, "Try again after the time given.")
            .with_header(header::RETRY_AFTER, "1")
    }

    pub fn no_access() -> Problem {
        let text = "There is no valid session, and the user name or password is wrong.".to_owned();
        Problem::new(StatusCode::UNAUTHORIZED, "NoValidSession", &[], text, "Log in with valid credentials.")
    }

    pub fn malformed() -> Problem {
        let text = "The request body is not a JSON object.".to_owned();
        Problem::new(StatusCode::BAD_REQUEST, "MalformedJSON", &[], text, "Send a JSON object.")
    }

    pub fn unknown_property(name: &str) -> Problem {
        let text = format!("The property '{name}' is not one of this resource.");
        Problem::new(StatusCode::BAD_REQUEST, "PropertyUnknown", &[name], text, "Remove the property.")
    }

    pub fn read_only(name: &str) -> Problem {
        let text = format!("The property '{name}' is read-only.");
        Problem::new(StatusCode::BAD_REQUEST, "PropertyNotWritable", &[name], text, "Remove the property.")
    }

    pub fn bad_value(name: &str, value: &Value) -> Problem {
        let value = value.to_string();
        let text = format!("The value {value} for the property '{name}' is not in the list of acceptable values.");
        let resolution = "Choose a value of the list that the resource names.";
        Problem::new(StatusCode::BAD_REQUEST, "PropertyValueNotInList", &[&value, name], text, resolution)
    }

    pub fn parameter_missing(action: &str, name: &str) -> Problem {
        let text = format!("The action {action} requires the parameter '{name}'.");
        Problem::new(StatusCode::BAD_REQUEST, "ActionParameterMissing", &[action, name], text, "Add the parameter.")
    }

    pub fn parameter_value(value: &str, name: &str, action: &str) -> Problem {
        let text = format!("The value '{value}' for the parameter '{name}' in the action {action} is not acceptable.");
        let resolution = "Choose a value that the action's description allows.";
        let status = StatusCode::BAD_REQUEST;
        Problem::new(status, "ActionParameterValueNotInList", &[value, name, action], text, resolution)
    }

    /// `value`: as it may be repeated.
    pub fn parameter_format(value: &str, name: &str, action: &str) -> Problem {
        let text = format!(
            "The value '{value}' for the parameter '{name}' in the action {action} is of a different format than the parameter can accept."
        );
        let message = "ActionParameterValueFormatError";
        let resolution = "Send an http or https URL.";
        Problem::new(StatusCode::BAD_REQUEST, message, &[value, name, action], text, resolution)
    }

    pub fn parameter_unknown(action: &str, name: &str) -> Problem {
        let text = format!("The action {action} was submitted with the invalid parameter '{name}'.");
        let resolution = "Remove the parameter.";
        Problem::new(StatusCode::BAD_REQUEST, "ActionParameterUnknown", &[action, name], text, resolution)
    }

    /// A medium is there already, or is just being changed.
    pub fn media_in_use() -> Problem {
        let text = "The change to the requested resource failed because the resource is in use or in transition.";
        let resolution = "Eject the medium first, or wait until the change that is under way is complete.";
        Problem::new(StatusCode::CONFLICT, "ResourceInUse", &[], text.to_owned(), resolution)
    }

    pub fn no_connection(uri: &str) -> Problem {
        let text = format!("The service failed to establish a connection with the URI '{uri}'.");
        let resolution = "Make sure that the URI is right, and that its host can be reached from the service.";
        Problem::new(StatusCode::BAD_REQUEST, "CouldNotEstablishConnection", &[uri], text, resolution)
    }

    /// At another service than this one.
    pub fn missing_at(uri: &str) -> Problem {
        Problem { status: StatusCode::BAD_REQUEST, ..Problem::missing(uri) }
    }

    pub fn not_authorized_at(uri: &str, status: StatusCode) -> Problem {
        let status = status.as_str();
        let text =
            format!("While accessing the resource at '{uri}', the service received an authorization error '{status}'.");
        let resolution = "Give the account that the resource wants.";
        Problem::new(StatusCode::BAD_REQUEST, "ResourceAtUriUnauthorized", &[uri, status], text, resolution)
    }

    pub fn no_room() -> Problem {
        let text = "There are insufficient resources to complete the requested operation.".to_owned();
        Problem::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", &[], text, "Choose a smaller image.")
    }

    pub fn precondition_failed() -> Problem {
        let text = "The ETag supplied did not match the ETag of the current resource.".to_owned();
        Problem::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", &[], text, "Read the resource again.")
    }

    /// HPE's own message.
    pub fn in_post() -> Problem {
        let text = "The value for the property cannot be changed while the system BIOS is in POST.".to_owned();
        let message = "iLO.2.14.UnableToModifyDuringSystemPOST";
        Problem::new(StatusCode::BAD_REQUEST, message, &[], text, "After POST is complete, retry the operation.")
    }

    pub fn job_waits() -> Problem {
        let text = "The change request failed because a job for this resource waits already.".to_owned();
        let resolution = "Wait until the job is complete, or delete it.";
        Problem::new(StatusCode::CONFLICT, "ResourceInUse", &[], text, resolution)
    }

    pub fn in_standby() -> Problem {
        let text = "The request could not be performed because the system is off.".to_owned();
        Problem::new(StatusCode::CONFLICT, "ResourceInStandby", &[], text, "Switch the system on first.")
    }

    pub fn internal() -> Problem {
        let text = "The service could not do this for a reason of its own; its log has it.".to_owned();
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &[], text, "Try again.")
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Response {
        let id = match problem.message.contains('.') {
            true => problem.message.to_owned(),
            false => format!("{REGISTRY}.{}", problem.message),
        };
        let body = json!({ "error": {
            "code": id,
            "message": problem.text,
            "@Message.ExtendedInfo": [{
                "@odata.type": "#Message.v1_2_0.Message",
                "MessageId": id,
                "Message": problem.text,
                "MessageArgs": problem.arguments,
                "MessageSeverity": "Warning",
                "Resolution": problem.resolution,
            }],
        }});
        let mut response = response::json(problem.status, &body);
        if let Some(header) = problem.extra {
            response::insert(&mut response, header.0, header.1);
        }
        response
    }
}
