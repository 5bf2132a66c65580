//! The controller sorts listeners before sending them, because the sequence of ports must not matter. This module translates indexes of
//! listeners in the adapter's answers back to indexes of `spec.ports`.

use std::fmt::Write as _;

use cloud_api_proto::{AdapterError, v1alpha1::Listener};

use crate::plan::{listeners::protocol, service::Port};

const LISTENER: &str = "spec.listeners";

/// Replaces the indexes of listeners in an error with indexes of `spec.ports`. The index is dropped if the Service no longer has the port.
pub(crate) fn of_ports(mut error: AdapterError, sent: &[Listener], ports: &[Port]) -> AdapterError {
    let is = |port: &Port, it: &Listener| {
        protocol(port.transport) == it.protocol() && u32::from(port.port) == it.port
    };
    let place = |it: &Listener| ports.iter().position(|port| is(port, it));
    let places: Vec<Option<usize>> = sent.iter().map(place).collect();
    error.message = put_right(&error.message, &places);
    for violation in &mut error.violations {
        violation.field = put_right(&violation.field, &places);
    }
    if let Some(fields) = error.metadata.get_mut("fields") {
        *fields = put_right(fields, &places);
    }
    error
}

fn put_right(text: &str, places: &[Option<usize>]) -> String {
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, found)) = rest.split_once(LISTENER) {
        words.push_str(before);
        words.push_str(LISTENER);
        rest = found;
        let number = found.strip_prefix('[').and_then(|it| it.split_once(']'));
        let known = number.and_then(|(at, after)| Some((places.get(at.parse::<usize>().ok()?)?, after)));
        if let Some((place, after)) = known {
            if let Some(place) = place {
                // Writing to a String cannot fail.
                let _written = write!(words, "[{place}]").is_ok();
            }
            rest = after;
        }
    }
    words + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::service::Transport;

    #[test]
    fn listener_index_is_translated_to_port_index() {
        let port = |port| Port::plain(Transport::Tcp, port, 0);
        let sent = |port| Listener { protocol: protocol(Transport::Tcp).into(), port, ..Listener::default() };
        let said = "spec.listeners[0].node_port is taken, spec.listeners[1] and spec.listeners[2].port are not; spec.listeners[9], \
                    spec.listeners[x], spec.listeners, spec.zone";
        let mut error = AdapterError::field("spec.listeners[0].node_port", "taken")
            .with("fields", "spec.listeners[1],spec.zone");
        error.message = said.to_owned();
        let error = of_ports(error, &[sent(80), sent(443), sent(8080)], &[port(443), port(80)]);
        assert_eq!(
            error.message,
            "spec.listeners[1].node_port is taken, spec.listeners[0] and spec.listeners.port are not; spec.listeners[9], \
             spec.listeners[x], spec.listeners, spec.zone"
        );
        assert_eq!(error.violations[0].field, "spec.listeners[1].node_port");
        assert_eq!(error.metadata["fields"], "spec.listeners[0],spec.zone");
    }
}
