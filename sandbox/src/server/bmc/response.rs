//! Answers with the headers that Redfish wants on each of them.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response {
    finished(status, Body::empty(), None)
}

pub fn json(status: StatusCode, value: &Value) -> Response {
    finished(status, Body::from(value.to_string()), Some("application/json;charset=utf-8"))
}

/// A resource: JSON with its entity tag and a link to its schema.
pub fn resource(status: StatusCode, value: &Value) -> Response {
    let mut response = json(status, value);
    insert(&mut response, header::ETAG, &etag_of(value));
    // "#Type.version.Type" is described by the file "Type.version", "#Type.Type" by "Type".
    if let Some((schema, _)) =
        value["@odata.type"].as_str().and_then(|name| name.trim_start_matches('#').rsplit_once('.'))
    {
        let link = format!("<http://redfish.dmtf.org/schemas/v1/{schema}.json>; rel=describedby");
        insert(&mut response, header::LINK, &link);
    }
    response
}

pub fn xml(text: String) -> Response {
    finished(StatusCode::OK, Body::from(text), Some("application/xml;charset=utf-8"))
}

/// Adds a header; a value that cannot be one is left out.
pub fn insert(response: &mut Response, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// The entity tag of a resource.
pub fn etag(value: &Value) -> String {
    let hash = Sha256::digest(value.to_string());
    let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

/// The entity tag that a resource has, or is to have.
pub fn etag_of(resource: &Value) -> String {
    resource["@odata.etag"].as_str().map_or_else(|| etag(resource), str::to_owned)
}

fn finished(status: StatusCode, body: Body, content_type: Option<&str>) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    insert(&mut response, header::HeaderName::from_static("odata-version"), "4.0");
    insert(&mut response, header::CACHE_CONTROL, "no-cache");
    if let Some(content_type) = content_type {
        insert(&mut response, header::CONTENT_TYPE, content_type);
    }
    response
}
