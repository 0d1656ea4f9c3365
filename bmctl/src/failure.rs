//! What went wrong, as a user reads it: the object, the cause, the next command. One enum, mapped once to an exit code.

use kube::core::Status;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{object} was not found; see what there is: {next}")]
    NotFound { object: String, next: String },
    #[error("{object}: {cause}")]
    Refused { object: String, cause: String },
    #[error("{object}: {cause}; next: {next}")]
    Told { object: String, cause: String, next: String },
    #[error("timed out after {seconds} s waiting for {object}: {cause}; next: {next}")]
    TimedOut { object: String, seconds: u64, cause: String, next: String },
    #[error("the API server did not answer: {0}; check --kubeconfig and --context")]
    Unreachable(String),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// 1: failed. 2 is clap's, for wrong usage. 124: timed out, as `timeout(1)` does.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::TimedOut { .. } => 124,
            _ => 1,
        }
    }

    /// `program` is the name that the user called: `bmctl` or `kubectl bm`.
    pub fn from_kube(error: kube::Error, object: &str, program: &str) -> Self {
        match error {
            // A path that the server does not serve, not an object that is not there: it names none.
            kube::Error::Api(status)
                if status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty()) =>
            {
                Self::Told {
                    object: "the cluster".to_owned(),
                    cause: "it does not serve metalplane.io/v1alpha1".to_owned(),
                    next: "helm install metalplane-crds charts/metalplane-crds".to_owned(),
                }
            }
            kube::Error::Api(status) if status.code == 404 => {
                Self::NotFound { object: object.to_owned(), next: format!("{program} get") }
            }
            kube::Error::Api(status) if status.code == 401 => Self::Told {
                object: object.to_owned(),
                cause: "the API server does not know who you are (401)".to_owned(),
                next: "renew the login of this kubeconfig's context, or choose another with --context".to_owned(),
            },
            kube::Error::Api(status) if status.code == 403 => Self::Told {
                object: object.to_owned(),
                cause: status.message.clone(),
                next: "kubectl auth can-i --list".to_owned(),
            },
            kube::Error::Api(status) => Self::Refused { object: object.to_owned(), cause: cause(&status) },
            other => Self::Unreachable(chain(&other)),
        }
    }
}

/// The server's own words, one field a line where it names fields.
fn cause(status: &Status) -> String {
    let fields: Vec<String> = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .filter(|cause| !cause.field.is_empty())
        .map(|cause| format!("\n  {}: {}", cause.field, cause.message))
        .collect();
    if fields.is_empty() { status.message.clone() } else { format!("refused:{}", fields.concat()) }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}
