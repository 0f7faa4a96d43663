//! What requests mean: one file per family of APIs. Each handler turns a decoded request into a response, by way of the log.

mod fetch;
mod init_producer;
mod list_offsets;
mod metadata;
mod produce;
mod topics;
mod versions;

use std::sync::Arc;

use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};

use crate::service::{Caller, Reply, Service};
use crate::wire::codec::{self, Head};

/// One request's surroundings.
pub(crate) struct Call<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) head: &'a Head,
}

impl Call<'_> {
    pub(crate) fn version(&self) -> i16 {
        self.head.version
    }
}

/// The handler of every API, by its request's type.
macro_rules! handlers {
    ($($key:ident: $request:ident by $handler:path,)*) => {
        /// Carries a request out.
        pub(crate) fn call(service: &Arc<Service>, caller: &Caller, head: &Head) -> Reply {
            let call = Call { service, head };
            tracing::trace!(connection = caller.connection, api = ?head.api.key, version = head.version, "a request");
            match head.api.key {
                ApiKey::Produce => match codec::request(head) {
                    Ok(request) => produce::produce(&call, request),
                    Err(refused) => Reply::Close(refused.to_string()),
                },
                $(ApiKey::$key => run(&call, $handler),)*
                other => Reply::Close(format!("{other:?} is in the table and has no handler")),
            }
        }

        /// Whether a request that has passed the guard can be decoded.
        pub(crate) fn decodes(head: &Head) -> bool {
            match head.api.key {
                ApiKey::Produce => codec::request::<ProduceRequest>(head).is_ok(),
                $(ApiKey::$key => codec::request::<$request>(head).is_ok(),)*
                _ => false,
            }
        }
    };
}

handlers! {
    ApiVersions: ApiVersionsRequest by versions::api_versions,
    Metadata: MetadataRequest by metadata::metadata,
    FindCoordinator: FindCoordinatorRequest by metadata::find_coordinator,
    Fetch: FetchRequest by fetch::fetch,
    ListOffsets: ListOffsetsRequest by list_offsets::list_offsets,
    CreateTopics: CreateTopicsRequest by topics::create_topics,
    InitProducerId: InitProducerIdRequest by init_producer::init_producer_id,
}

fn run<Request: Decodable, Response: Encodable + HeaderVersion>(
    call: &Call<'_>,
    handler: impl FnOnce(&Call<'_>, Request) -> Response,
) -> Reply {
    match codec::request(call.head) {
        Ok(request) => answer(call.head, &handler(call, request)),
        Err(refused) => Reply::Close(refused.to_string()),
    }
}

/// A response in the version of its request.
pub(crate) fn answer<Response: Encodable + HeaderVersion>(head: &Head, response: &Response) -> Reply {
    match codec::response(head.api.key, head.version, head.correlation, response) {
        Ok(frame) => Reply::Now(frame),
        Err(refused) => Reply::Close(refused.to_string()),
    }
}

pub(crate) use versions::newest_versions;
