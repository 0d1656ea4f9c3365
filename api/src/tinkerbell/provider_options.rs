//! Settings of the protocols by which Tinkerbell reaches a BMC. Metalplane reads `redfish` and `ipmitool` only; the
//! others are kept as they are for Tinkerbell's own controllers.

use super::SecretReference;
use super::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of single providers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderOptions {
    /// Providers that are tried first, in this order; case does not matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_order: Vec<ProviderName>,
    /// Intel AMT.
    #[serde(rename = "intelAMT", skip_serializing_if = "Option::is_none")]
    pub intel_amt: Option<IntelAmtOptions>,
    /// IPMI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipmitool: Option<IpmitoolOptions>,
    /// Redfish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redfish: Option<RedfishOptions>,
    /// A webhook in the place of a BMC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<RpcOptions>,
    /// A plug switched by Home Assistant in the place of a BMC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homeassistant: Option<HomeAssistantOptions>,
}

/// Name of a provider.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ProviderName(
    #[schemars(regex(pattern = "(?i)^(ipmitool|asrockrack|gofish|IntelAMT|dell|supermicro|openbmc)$"))] pub String,
);

/// Settings of Intel AMT.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IntelAmtOptions {
    /// TCP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int")]
    pub port: Option<i64>,
    /// http or https.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["http", "https"], "default" = "http"))]
    pub host_scheme: Option<String>,
}

/// Settings of IPMI.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IpmitoolOptions {
    /// UDP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int")]
    pub port: Option<i64>,
    /// Number of the cipher suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher_suite: Option<String>,
}

/// Settings of Redfish.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RedfishOptions {
    /// TCP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int")]
    pub port: Option<i64>,
    /// True: HTTP basic authentication with every request, instead of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_basic_auth: Option<bool>,
    /// The ComputerSystem to use, where one service manages several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_name: Option<String>,
}

/// Settings of the webhook.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcOptions {
    /// Where requests are sent.
    #[serde(rename = "consumerURL")]
    pub consumer_url: String,
    /// True: answers are not logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_notifications_disabled: Option<bool>,
    /// Form of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RpcRequest>,
    /// How the request is signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<RpcSignature>,
    /// Keys of the signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hmac: Option<RpcHmac>,
    /// Settings that upstream may change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<RpcExperimental>,
}

/// Form of a webhook's request.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcRequest {
    /// Content-Type of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_content_type: Option<String>,
    /// Method of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_method: Option<String>,
    /// Headers added to every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub static_headers: BTreeMap<String, Vec<String>>,
    /// Form of the time in the timestamp header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp_format: Option<String>,
    /// Name of the timestamp header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
}

/// How a webhook's request is signed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcSignature {
    /// Header that carries the signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_name: Option<String>,
    /// True: the algorithm is not appended to the header's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_algo_to_header_disabled: Option<bool>,
    /// Headers whose values are signed too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_payload_headers: Vec<String>,
}

/// Keys of a webhook's signature.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcHmac {
    /// True: the signature does not start with the algorithm's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_sig_disabled: Option<bool>,
    /// Secrets per algorithm.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Vec<SecretReference>>,
}

/// Settings of the webhook that upstream may change.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcExperimental {
    /// A JSON document into which the request is put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_request_payload: Option<String>,
    /// Where in that document, as a dotted path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dot_path: Option<String>,
}

/// Settings of Home Assistant.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HomeAssistantOptions {
    /// The switch entity that powers the host.
    #[serde(rename = "switchEntityID")]
    pub switch_entity_id: String,
    /// Seconds to wait after the switch was turned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_operation_delay_seconds: Option<i32>,
}
