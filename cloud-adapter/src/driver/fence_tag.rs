//! The format of a fence in a vendor tag: `service-controller/0/1767225600/42`.

use cloud_api_proto::v1alpha1::Fence;

/// Returns the value of the tag. `None`: the request has no writer, as in a dry run.
#[must_use]
pub fn write_fence(fence: &Fence) -> Option<String> {
    let Fence { scope, epoch, sequence } = fence;
    (!scope.is_empty()).then(|| format!("{scope}/{epoch}/{sequence}"))
}

/// Parses the value of a tag. `None`: the value is not a fence.
#[must_use]
pub fn read_fence(tag: &str) -> Option<Fence> {
    let mut parts = tag.rsplitn(3, '/');
    let sequence = parts.next()?.parse().ok()?;
    let epoch = parts.next()?.parse().ok()?;
    let scope = parts.next().filter(|scope| !scope.is_empty())?.to_owned();
    Some(Fence { scope, epoch, sequence })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_tag_round_trip() {
        let fence = Fence { scope: "service-controller/0".to_owned(), epoch: 7, sequence: 42 };
        let tag = write_fence(&fence).expect("the writer is known");
        assert_eq!(tag, "service-controller/0/7/42");
        assert_eq!(read_fence(&tag), Some(fence));
        assert_eq!(write_fence(&Fence::default()), None);
        for tag in ["", "7/42", "/7/42", "a/7/x", "a/x/42", "a/-1/2"] {
            assert_eq!(read_fence(tag), None, "{tag:?}");
        }
    }
}
