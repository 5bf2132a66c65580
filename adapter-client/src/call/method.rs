//! The methods of the contract. The contract's descriptor shows which of them return a stream.

use std::{collections::BTreeMap, sync::LazyLock};

use cloud_api_proto::DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// How a method responds. Each method takes a single message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Unary,
    Stream,
}

static METHODS: LazyLock<BTreeMap<String, Method>> = LazyLock::new(|| {
    // The descriptor is compiled in. If it were missing, no call would be repeated, which a test would detect.
    let files = FileDescriptorSet::decode(DESCRIPTOR_SET).unwrap_or_default().file;
    files.iter().flat_map(methods).collect()
});

/// Returns how the method with this request path responds, or `None` if the method is not part of the contract. It is then unknown whether
/// the call may be repeated.
pub(super) fn of(path: &str) -> Option<Method> {
    METHODS.get(path).copied()
}

fn methods(file: &FileDescriptorProto) -> impl Iterator<Item = (String, Method)> {
    file.service.iter().flat_map(move |service| {
        let one_message = service.method.iter().filter(|method| !method.client_streaming());
        one_message.map(move |method| {
            let kind = if method.server_streaming() { Method::Stream } else { Method::Unary };
            (format!("/{}.{}/{}", file.package(), service.name(), method.name()), kind)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contracts_methods_are_known() {
        assert_eq!(METHODS.len(), 10, "{METHODS:?}");
        assert_eq!(of("/cloudadapter.v1alpha1.AdapterService/GetInfo"), Some(Method::Unary));
        assert_eq!(of("/cloudadapter.v1alpha1.RouteService/WatchRoutes"), Some(Method::Stream));
        assert_eq!(of("/grpc.health.v1.Health/Check"), None);
    }
}
