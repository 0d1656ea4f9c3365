//! As whom images are pushed: two variables of the environment, else what `docker login` wrote, else nobody.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};

pub(super) const USER: &str = "METALPLANE_REGISTRY_USER";
pub(super) const PASSWORD: &str = "METALPLANE_REGISTRY_PASSWORD";

/// `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Anonymous {
        /// Where a login was looked for.
        looked: String,
    },
    Login {
        user: String,
        password: String,
        /// Where it was found.
        from: String,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous { looked } => write!(f, "nobody ({looked})"),
            Self::Login { user, from, .. } => write!(f, "{user} ({from})"),
        }
    }
}

impl Credentials {
    /// `host`: with its port. `given`: the file that a flag names.
    pub(super) fn find(host: &str, given: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        match (variable(USER), variable(PASSWORD)) {
            (Some(user), Some(password)) => {
                return Ok(Self::Login { user, password, from: format!("{USER} and {PASSWORD}") });
            }
            (None, None) => {}
            (Some(_), None) => bail!("{USER} is set and {PASSWORD} is not: set both or neither"),
            (None, Some(_)) => bail!("{PASSWORD} is set and {USER} is not: set both or neither"),
        }
        let folder = || variable("DOCKER_CONFIG").or_else(|| Some(variable("HOME")? + "/.docker")).map(PathBuf::from);
        let Some(file) = given.map(Path::to_owned).or_else(|| Some(folder()?.join("config.json"))) else {
            return Ok(Self::Anonymous { looked: format!("neither {USER} nor HOME is set") });
        };
        let name = file.display().to_string();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            // The default one need not be there.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && given.is_none() => {
                return Ok(Self::Anonymous { looked: format!("{USER} is not set, and there is no {name}") });
            }
            Err(error) => return Err(error).with_context(|| format!("read {name}")),
        };
        let config: Value = serde_json::from_str(&text).with_context(|| format!("read {name} as JSON"))?;
        Self::of_docker(host, &config, &name)
    }

    /// In the form of docker and podman: `auths`, by host, with `auth` as base64 of `user:password`.
    fn of_docker(host: &str, config: &Value, file: &str) -> Result<Self> {
        let Some(entry) = keys(host).into_iter().find_map(|key| config["auths"].get(key)) else {
            if config["credHelpers"].get(host).is_some() {
                bail!(
                    "{file} leaves the password of {host} to a helper, which is not asked: set {USER} and {PASSWORD}"
                );
            }
            return Ok(Self::Anonymous { looked: format!("{USER} is not set, and {file} has no auths.{host:?}") });
        };
        if let Some(auth) = entry["auth"].as_str().filter(|auth| !auth.is_empty()) {
            let login = STANDARD.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let login = login.as_deref().and_then(|login| login.split_once(':'));
            let (user, password) = login
                .with_context(|| format!("{file}: the auth of {host} is no base64 of user:password: log in anew"))?;
            return Ok(Self::Login { user: user.to_owned(), password: password.to_owned(), from: file.to_owned() });
        }
        match (entry["username"].as_str(), entry["password"].as_str()) {
            (Some(user), Some(password)) => {
                Ok(Self::Login { user: user.to_owned(), password: password.to_owned(), from: file.to_owned() })
            }
            _ => bail!("{file} keeps the password of {host} in a store, which is not asked: set {USER} and {PASSWORD}"),
        }
    }
}

/// How docker names a host.
fn keys(host: &str) -> Vec<String> {
    let mut keys =
        vec![host.to_owned(), format!("https://{host}"), format!("https://{host}/v1/"), format!("https://{host}/v2/")];
    if host == "docker.io" {
        keys.push("https://index.docker.io/v1/".to_owned());
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn docker(config: &Value) -> Result<Credentials, String> {
        Credentials::of_docker("r.example:5000", config, "config.json").map_err(|error| error.to_string())
    }

    #[test]
    fn a_login_is_found_where_docker_keeps_it() {
        let auth = STANDARD.encode("ann:a:b");
        for entry in [json!({"auth": auth}), json!({"username": "ann", "password": "a:b"})] {
            for key in ["r.example:5000", "https://r.example:5000/v2/"] {
                let found = docker(&json!({"auths": {key: entry}})).expect("found");
                let Credentials::Login { user, password, .. } = &found else { panic!("{found:?}") };
                assert_eq!((user.as_str(), password.as_str()), ("ann", "a:b"));
                assert_eq!(format!("{found:?}"), "ann (config.json)");
            }
        }
        assert!(matches!(docker(&json!({"auths": {"r.example": {"auth": auth}}})), Ok(Credentials::Anonymous { .. })));
    }

    #[test]
    fn what_is_kept_elsewhere_is_said() {
        let cases = [
            json!({"auths": {"r.example:5000": {}}, "credsStore": "desktop"}),
            json!({"credHelpers": {"r.example:5000": "ecr"}}),
        ];
        for config in cases {
            let error = docker(&config).expect_err("a helper has it");
            assert!(error.contains(PASSWORD), "{error}");
        }
        let error = docker(&json!({"auths": {"r.example:5000": {"auth": "!"}}})).expect_err("no base64");
        assert!(error.contains("log in anew"), "{error}");
    }

    #[test]
    fn the_environment_comes_first_and_whole() {
        let find = |user: Option<&str>, password: Option<&str>| {
            let (user, password) = (user.map(str::to_owned), password.map(str::to_owned));
            Credentials::find("r.example", None, move |name| match name {
                USER => user.clone(),
                PASSWORD => password.clone(),
                _ => None,
            })
        };
        assert!(
            matches!(find(Some("ann"), Some("x")).expect("both"), Credentials::Login { user, .. } if user == "ann")
        );
        assert!(matches!(find(None, None).expect("neither"), Credentials::Anonymous { .. }));
        for half in [find(Some("ann"), None), find(None, Some("x"))] {
            assert!(half.expect_err("half").to_string().contains("set both or neither"));
        }
        let missing = Credentials::find("r.example", Some(Path::new("/nowhere/config.json")), |_| None);
        assert!(missing.expect_err("it was named").to_string().contains("/nowhere/config.json"));
    }
}
