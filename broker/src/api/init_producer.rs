//! `InitProducerId`: a producer id for idempotence.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

use super::Call;

const NO_PRODUCER: ProducerId = ProducerId(-1);

pub(super) fn init_producer_id(call: &Call<'_>, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let refused = |error: ResponseError| {
        InitProducerIdResponse::default()
            .with_error_code(error.code())
            .with_producer_id(NO_PRODUCER)
            .with_producer_epoch(-1)
    };
    match request.transactional_id {
        Some(_) => refused(ResponseError::InvalidRequest),
        None => match call.service.log.allocate_producer() {
            Ok(id) => InitProducerIdResponse::default().with_producer_id(ProducerId(id)).with_producer_epoch(0),
            Err(_) => refused(ResponseError::KafkaStorageError),
        },
    }
}
