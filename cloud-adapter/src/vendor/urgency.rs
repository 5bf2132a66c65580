//! The priority of a vendor call. The kind of the call determines its priority, up to the limits of the caller's role and of the request's
//! priority.

use cloud_api_proto::v1alpha1::Priority;

use super::Purpose;

/// If the request has a lower priority than [`Priority::Interactive`], that priority applies to all its work. For example, a resync and its
/// writes stay in the background. Otherwise backend updates go first, and polls go last.
pub(crate) fn classed(asked: &Purpose, class: Priority) -> Purpose {
    let cap = asked.caller.role.cap();
    let most = if asked.priority < Priority::Interactive { asked.priority } else { cap };
    Purpose { priority: class.min(most).min(cap), ..asked.clone() }
}

#[cfg(test)]
mod tests {
    use crate::auth::{Caller, Role};

    use super::*;

    #[test]
    fn priority_is_capped_by_caller_and_request() {
        use Priority::{Background, Interactive, Lifecycle, Traffic};
        for (role, asked, class, wanted) in [
            (Role::ServiceController, Interactive, Traffic, Traffic),
            (Role::ServiceController, Interactive, Lifecycle, Lifecycle),
            (Role::ServiceController, Traffic, Interactive, Interactive),
            (Role::ServiceController, Background, Traffic, Background),
            (Role::ServiceController, Background, Lifecycle, Background),
            (Role::NodeController, Interactive, Traffic, Interactive),
            (Role::Operator, Background, Interactive, Background),
        ] {
            let mut purpose = Purpose::own(asked, "test");
            purpose.caller = Caller { role, ..purpose.caller };
            assert_eq!(classed(&purpose, class).priority, wanted, "{role:?} {asked:?} {class:?}");
        }
    }
}
