//! As whom a registry is asked: nobody, or who has a password. What it wants to see for that it says itself, in the answer 401: the
//! password (`Basic`), or a token that another server gives for it (`Bearer`; the distribution's *token authentication*), to anonymous
//! clients too. A token that has expired meanwhile is asked for anew.

use super::Reference;
use crate::fetch::{answered, invalid};
use crate::{Error, Kind, Source, client};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use url::{Origin, Url};

/// Of a server of tokens.
const ANSWER: usize = 1 << 20;

#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl Login {
    fn header(&self) -> Result<HeaderValue, String> {
        let both = STANDARD.encode(format!("{}:{}", self.user, self.password));
        secret(format!("Basic {both}"))
    }
}

/// To one repository of a registry. Clones share what they were given.
#[derive(Clone)]
pub struct Access {
    origin: Origin,
    name: String,
    login: Option<Login>,
    login_field: &'static str,
    held: Arc<Mutex<Option<HeaderValue>>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name, self.origin.ascii_serialization())
    }
}

/// Of a token for a while.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Access {
    /// `login_field`: where a login is written, for the message of a registry that wants one or another.
    pub fn new(reference: &Reference, login: Option<Login>, login_field: &'static str) -> Result<Self, String> {
        let origin = Url::parse(&reference.origin()).map_err(|error| error.to_string())?.origin();
        Ok(Self { origin, name: reference.name.clone(), login, login_field, held: Arc::default() })
    }

    /// Where a registry sends its clients (to a store of blobs, say) is told nothing.
    pub(crate) fn covers(&self, url: &Url) -> bool {
        url.origin() == self.origin
    }

    pub(crate) fn signed(&self, headers: &HeaderMap) -> HeaderMap {
        let mut headers = headers.clone();
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        headers.extend(held.map(|held| (header::AUTHORIZATION, held)));
        headers
    }

    /// What the registry wants to see next time, by its answer 401.
    pub(crate) async fn answer(&self, source: &Source, headers: &HeaderMap) -> Result<(), Error> {
        let registry = self.origin.ascii_serialization();
        let refused = |cause: &str| Error::new(Kind::Unauthorized, format!("{registry}: {cause}"));
        let all: Vec<_> =
            headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|one| one.to_str().ok()).collect();
        let all = all.join(", ");
        let challenges = http_auth::parse_challenges(&all)
            .map_err(|_| refused("it refuses, and what it wants to see (WWW-Authenticate) cannot be read"))?;
        let of = |scheme: &str| challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme));
        let held = if let Some(bearer) = of("Bearer") {
            let value = |key: &str| {
                let found = bearer.params.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
                found.map(|(_, value)| value.to_unescaped())
            };
            let realm = value("realm").and_then(|realm| Url::parse(&realm).ok());
            let realm = realm.ok_or_else(|| refused("it wants a token, and does not say from where (realm)"))?;
            let scope = value("scope").unwrap_or_else(|| format!("repository:{}:pull", self.name));
            self.token(source, realm, value("service"), &scope).await?
        } else if of("Basic").is_some() {
            let login = self.login.as_ref();
            let login = login.ok_or_else(|| refused(&format!("it wants a password: write {}", self.login_field)))?;
            login.header().map_err(|cause| refused(&cause))?
        } else {
            return Err(refused("it refuses, and wants to see neither a password (Basic) nor a token (Bearer)"));
        };
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(())
    }

    async fn token(
        &self,
        source: &Source,
        mut realm: Url,
        service: Option<String>,
        scope: &str,
    ) -> Result<HeaderValue, Error> {
        if self.origin.ascii_serialization().starts_with("https:") && realm.scheme() != "https" {
            return Err(invalid(&realm, &format!("the registry gives tokens by {} alone", realm.scheme())));
        }
        if let Some(service) = service {
            realm.query_pairs_mut().append_pair("service", &service);
        }
        realm.query_pairs_mut().append_pair("scope", scope);
        let mut headers = HeaderMap::new();
        if let Some(login) = &self.login {
            headers.insert(header::AUTHORIZATION, login.header().map_err(|cause| invalid(&realm, &cause))?);
        }
        let response = client::request(source, &realm, &headers).await?;
        match response.status() {
            StatusCode::OK => {}
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => return Err(self.refused(&realm, status)),
            status => return Err(answered(&realm, status)),
        }
        let bytes = client::whole(&realm, response, ANSWER).await?;
        // What is wrong with it is not told: it may have the token in it.
        let token = serde_json::from_slice::<Token>(&bytes).ok();
        let token = token.and_then(|token| token.token.or(token.access_token)).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| invalid(&realm, "the answer has no token"))?;
        secret(format!("Bearer {token}")).map_err(|cause| invalid(&realm, &cause))
    }

    pub(crate) fn refused(&self, url: &Url, status: StatusCode) -> Error {
        let (name, field) = (&self.name, self.login_field);
        let advice = match self.login {
            Some(_) => format!("what {field} say is wrong, or may not pull {name}"),
            None => format!("not everybody may pull {name}, or there is none: write {field} of somebody who may"),
        };
        Error::new(Kind::Unauthorized, format!("{}: {advice}", answered(url, status)))
    }
}

fn secret(value: String) -> Result<HeaderValue, String> {
    let value = HeaderValue::try_from(value);
    let mut value = value.map_err(|_| "what it gave as a token is no value of a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_for_the_registry_alone_and_is_not_shown() {
        let reference: Reference = "r.example:5000/disks/debian:1".parse().expect("a reference");
        let login = Login { user: "ann".to_owned(), password: "hidden".to_owned() };
        let access = Access::new(&reference, Some(login), "REGISTRY_LOGIN").expect("access");
        let covers = |url: &str| access.covers(&Url::parse(url).expect("an URL"));
        assert!(covers("https://r.example:5000/v2/disks/debian/blobs/sha256:1"));
        for elsewhere in ["http://r.example:5000/v2/", "https://r.example/v2/", "https://blobs.r.example:5000/v2/"] {
            assert!(!covers(elsewhere), "{elsewhere}");
        }
        *access.held.lock().expect("no panic") = Some(secret("Bearer hidden".to_owned()).expect("a header"));
        let signed = access.signed(&HeaderMap::new());
        assert!(signed.contains_key(header::AUTHORIZATION));
        assert!(!format!("{access:?} {signed:?}").contains("hidden"));
    }
}
