//! `BatchGetInstancesResponse` and `InstanceResult` with shared instances, encoded exactly like the contract's messages. Copying hundreds
//! of instances per answer would take longer than looking them up.

use std::sync::Arc;

use bytes::{Buf, BufMut};
use cloud_api_proto::v1alpha1::{
    BatchGetInstancesRequest, Cost, Evidence, Existence, Instance, ItemError, Scope,
};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType},
};
use tonic::{
    Status,
    codec::{Codec, EncodeBuf, Encoder},
};
use tonic_prost::ProstDecoder;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) results: Vec<Verdict>,
    #[prost(message, optional, tag = "2")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, optional, tag = "3")]
    pub(crate) cost: Option<Cost>,
}

/// Encodes answers. The codec reserves memory for the whole answer at once, because a growing buffer is copied repeatedly.
#[derive(Debug, Default)]
pub(crate) struct ResponseCodec;

impl Codec for ResponseCodec {
    type Encode = GetResponse;
    type Decode = BatchGetInstancesRequest;
    type Encoder = Self;
    type Decoder = ProstDecoder<BatchGetInstancesRequest>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl Encoder for ResponseCodec {
    type Item = GetResponse;
    type Error = Status;

    fn encode(&mut self, answer: GetResponse, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(answer.encoded_len());
        answer.encode_raw(buffer);
        Ok(())
    }
}

/// The result for one instance: the contract's `InstanceResult`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Verdict {
    #[prost(enumeration = "Existence", tag = "1")]
    pub(crate) existence: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) instance: Option<Shared>,
    #[prost(message, optional, boxed, tag = "3")]
    pub(crate) evidence: Option<Box<Evidence>>,
    #[prost(message, optional, boxed, tag = "4")]
    pub(crate) error: Option<Box<ItemError>>,
}

impl Verdict {
    pub(crate) fn plain(existence: Existence) -> Self {
        Self { existence: existence.into(), ..Self::default() }
    }
}

/// The encoded instance. Its length is cached, because each enclosing level needs it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shared {
    instance: Arc<Instance>,
    encoded_len: usize,
}

impl From<Arc<Instance>> for Shared {
    fn from(instance: Arc<Instance>) -> Self {
        Self { encoded_len: instance.encoded_len(), instance }
    }
}

impl Message for Shared {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        self.instance.encode_raw(buffer);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let instance = Arc::make_mut(&mut self.instance);
        instance.merge_field(tag, wire_type, buffer, context)?;
        self.encoded_len = instance.encoded_len();
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.encoded_len
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{BatchGetInstancesResponse, InstanceResult, evidence::Method};

    use super::*;

    #[test]
    fn an_answer_is_the_contracts_message() {
        let instance = Instance { name: "node-1".into(), ..Instance::default() };
        let scope = Scope { account: "a".into(), ..Scope::default() };
        let evidence = Evidence { method: Method::TerminalState.into(), witnesses: 2, ..Evidence::default() };
        let error = ItemError { message: "no".into(), ..ItemError::default() };
        let cost = Cost { vendor_calls: 3, ..Cost::default() };
        let results = vec![
            Verdict {
                instance: Some(Arc::new(instance.clone()).into()),
                ..Verdict::plain(Existence::Exists)
            },
            Verdict { evidence: Some(evidence.clone().into()), ..Verdict::plain(Existence::Gone) },
            Verdict { error: Some(error.clone().into()), ..Verdict::plain(Existence::Unknown) },
            Verdict::plain(Existence::NotVisible),
        ];
        let answer = GetResponse { results, scope: Some(scope.clone()), cost: Some(cost.clone()) };

        let plain =
            |existence: Existence| InstanceResult { existence: existence.into(), ..Default::default() };
        let contracts = BatchGetInstancesResponse {
            results: vec![
                InstanceResult { instance: Some(instance), ..plain(Existence::Exists) },
                InstanceResult { evidence: Some(evidence), ..plain(Existence::Gone) },
                InstanceResult { error: Some(error), ..plain(Existence::Unknown) },
                plain(Existence::NotVisible),
            ],
            scope: Some(scope),
            cost: Some(cost),
        };
        let bytes = contracts.encode_to_vec();
        assert_eq!(answer.encode_to_vec(), bytes);
        assert_eq!(GetResponse::decode(bytes.as_slice()).expect("the same encoding"), answer);
    }
}
