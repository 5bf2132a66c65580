//! Tests that messages of a newer version of the contract can be read.

use cloud_api_proto::v1alpha1::GetInfoResponse;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

#[test]
fn unknown_fields_of_a_newer_adapter_are_ignored() {
    let known = GetInfoResponse { provider: "sim".to_owned(), ..GetInfoResponse::default() };
    let mut newer = known.encode_to_vec();
    encode_key(9999, WireType::Varint, &mut newer);
    encode_varint(1, &mut newer);
    assert_eq!(GetInfoResponse::decode(newer.as_slice()), Ok(known));
}
