//! `ApiVersions`: what this server speaks.

use cutwater_partition_log::remote::{API_KEY, API_VERSION, API_VERSION_MIN};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use super::{Call, owners};
use crate::errors::text;
use crate::service::Reply;
use crate::wire::{apis, codec};

/// The features that clients look for, with their newest level: by `transaction.version` 2 Java's clients use one epoch per
/// transaction (KIP-890), `group.version` 1 says that there are consumer groups by the newer protocol (KIP-848).
const FEATURES: &[(&str, i16)] = &[("transaction.version", 2), ("group.version", 1)];

fn response(version: i16, ours: bool) -> ApiVersionsResponse {
    let listed = apis::APIS.iter().map(|api| {
        let (key, to) = (api.key as i16, api.versions.1);
        ApiVersion::default().with_api_key(key).with_min_version(api.listed_from).with_max_version(to)
    });
    let owners = ours.then(|| {
        let listed = ApiVersion::default().with_api_key(API_KEY);
        listed.with_min_version(API_VERSION_MIN).with_max_version(API_VERSION)
    });
    let response = ApiVersionsResponse::default().with_api_keys(listed.chain(owners).collect());
    if version < 3 {
        return response;
    }
    let supported = FEATURES.iter().map(|(name, level)| {
        // Clients of these versions can't read a feature that begins at 0 (KAFKA-17011).
        let from = if version < 4 { 1 } else { 0 };
        SupportedFeatureKey::default().with_name(text(*name)).with_min_version(from).with_max_version(*level)
    });
    let finalized = FEATURES.iter().map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(text(*name))
            .with_min_version_level(*level)
            .with_max_version_level(*level)
    });
    response
        .with_supported_features(supported.collect())
        .with_finalized_features_epoch(0)
        .with_finalized_features(finalized.collect())
}

pub(super) fn api_versions(call: &Call<'_>, request: ApiVersionsRequest) -> ApiVersionsResponse {
    response(call.version(), owners::is_listed_to(call.caller, &request.client_software_name))
}

/// The answer to a client that asks in a version from the future: in version 0, which every client reads, with all that is
/// served, so that it steps down.
pub(crate) fn newest_versions(correlation: i32) -> Reply {
    let response = response(0, false).with_error_code(ResponseError::UnsupportedVersion.code());
    match codec::response(ApiKey::ApiVersions, 0, correlation, &response) {
        Ok(frame) => Reply::Now(frame),
        Err(refused) => Reply::Close(refused.to_string()),
    }
}
