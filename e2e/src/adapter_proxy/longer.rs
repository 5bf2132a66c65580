//! Simulates the answers of an adapter of a later release: each message has a field that the contract does not define.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

/// The tag of the field with the highest number, as a varint. Source: Protocol Buffers, Encoding.
const FIELD: [u8; 6] = [0xf8, 0xff, 0xff, 0xff, 0x0f, 1];
/// The compression flag and the length. Source: gRPC over HTTP/2, Length-Prefixed-Message.
const PREFIX: usize = 5;

/// Adds the field to each message of the answer.
pub(super) fn longer(answer: Body) -> Body {
    let mut waiting = BytesMut::new();
    Body::new(answer.map_frame(move |frame| {
        frame.map_data(|data| {
            waiting.extend_from_slice(&data);
            whole(&mut waiting)
        })
    }))
}

/// Takes all complete messages from the buffer. A frame may contain several messages, or a part of one.
fn whole(waiting: &mut BytesMut) -> Bytes {
    let mut out = BytesMut::new();
    while let Some((flag, length)) = prefix(waiting) {
        let Some(end) = PREFIX.checked_add(length).filter(|end| *end <= waiting.len()) else { break };
        let message = waiting.split_to(end).split_off(PREFIX);
        let length = u32::try_from(length.saturating_add(FIELD.len())).unwrap_or(u32::MAX);
        out.extend_from_slice(&[flag]);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&message);
        out.extend_from_slice(&FIELD);
    }
    out.freeze()
}

fn prefix(waiting: &[u8]) -> Option<(u8, usize)> {
    let (flag, rest) = waiting.split_first()?;
    let length = u32::from_be_bytes(*rest.first_chunk()?);
    Some((*flag, usize::try_from(length).ok()?))
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use cloud_api_proto::v1alpha1::GetInfoResponse;
    use prost::Message as _;

    use super::{PREFIX, whole};

    #[test]
    fn added_field_is_ignored_for_any_split_of_frames() {
        let message = GetInfoResponse { provider: "sim".to_owned(), ..GetInfoResponse::default() };
        let mut sent = BytesMut::new();
        for _ in 0..2 {
            sent.put_u8(0);
            sent.put_u32(u32::try_from(message.encoded_len()).unwrap());
            message.encode(&mut sent).unwrap();
        }
        for cut in 0..sent.len() {
            let mut waiting = BytesMut::from(&sent[..cut]);
            let mut got = whole(&mut waiting).to_vec();
            waiting.extend_from_slice(&sent[cut..]);
            got.extend_from_slice(&whole(&mut waiting));
            assert!(waiting.is_empty());
            let (first, second) = got.split_at(got.len() / 2);
            assert_eq!(first, second);
            assert!(first.len() > sent.len() / 2);
            assert_eq!(GetInfoResponse::decode(&first[PREFIX..]).unwrap(), message);
        }
    }
}
