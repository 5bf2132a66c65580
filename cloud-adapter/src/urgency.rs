//! How urgent a vendor call is: by what it does, never above what the caller may, and never above what the caller asked for less of.

use cloud_api_proto::v1alpha1::Priority;

use crate::vendor::Purpose;

/// The purpose of calls of this class.
///
/// A caller that asks for less than [`Priority::Interactive`] means all of its work: a resync stays in the background, whatever it
/// writes. Otherwise packets that wait for backends go first, and polls step back.
pub(crate) fn classed(asked: &Purpose, class: Priority) -> Purpose {
    let cap = asked.caller.role.cap();
    let most = if asked.priority < Priority::Interactive { asked.priority } else { cap };
    Purpose { priority: class.min(most).min(cap), ..asked.clone() }
}

#[cfg(test)]
mod tests {
    use cloud_adapter_security::{Caller, Role};

    use super::*;

    #[test]
    fn work_decides_below_the_callers_cap_and_wish() {
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
