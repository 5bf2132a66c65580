//! Renders the type of a field, with a link if the type is on the page.

use prost_types::{DescriptorProto, FieldDescriptorProto, field_descriptor_proto::Label};

use super::PACKAGE;

pub(super) struct Types<'a> {
    pub(super) message: &'a DescriptorProto,
}

impl Types<'_> {
    /// Returns the type of a field in words, such as `optional uint32` or `map of string to` a message.
    pub(super) fn words(&self, field: &FieldDescriptorProto) -> String {
        if let Some([key, value]) = self.entry(field) {
            return format!("map of {} to {}", single(key), single(value));
        }
        let single = single(field);
        match field.label() {
            Label::Repeated => format!("repeated {single}"),
            Label::Optional | Label::Required if field.proto3_optional() => format!("optional {single}"),
            Label::Optional | Label::Required => single,
        }
    }

    /// Returns the key and the value of a map field. The compiler represents a map as a repeated nested message.
    fn entry(&self, field: &FieldDescriptorProto) -> Option<&[FieldDescriptorProto; 2]> {
        let made = self.message.nested_type.iter().filter(|nested| is_map_entry(nested));
        let entry =
            made.into_iter().find(|nested| field.type_name().ends_with(&format!(".{}", nested.name())))?;
        entry.field.as_slice().try_into().ok()
    }
}

pub(super) fn is_map_entry(message: &DescriptorProto) -> bool {
    message.options.as_ref().is_some_and(|options| options.map_entry())
}

/// Returns the type of one value of a field, without `optional`, `repeated` or `map`.
fn single(field: &FieldDescriptorProto) -> String {
    match field.type_name() {
        "" => field.r#type().as_str_name().trim_start_matches("TYPE_").to_ascii_lowercase(),
        named => link(named),
    }
}

/// The name of a message or enum, linked if it is on the page.
pub(super) fn link(full: &str) -> String {
    let full = full.trim_start_matches('.');
    match full.strip_prefix(PACKAGE).and_then(|rest| rest.strip_prefix('.')) {
        // Anchors of headings have no dots.
        Some(name) => format!("[{name}](#{})", name.replace('.', "").to_ascii_lowercase()),
        None => full.rsplit('.').next().unwrap_or(full).to_owned(),
    }
}
