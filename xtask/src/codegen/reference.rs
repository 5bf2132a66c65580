//! Generates the reference page of the contract: services, messages and enums with their comments, in the order of the files. Pure
//! functions.

mod comments;
mod types;

use std::{collections::BTreeMap, fmt::Write as _};

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
};

use self::{comments::Comments, types::Types};

/// The package to render; imported packages are not rendered.
const PACKAGE: &str = "cloudadapter.v1alpha1";

const HEAD: &str = "# The contract

<!-- Written by `cargo xtask codegen` from the .proto files: change those. -->

Package `cloudadapter.v1alpha1`, from the comments of its [files](../../cloud-api-proto/proto/cloudadapter/v1alpha1/).
[Write an adapter](../write-an-adapter.md) describes how to implement it.
";

// The numbers of `SourceCodeInfo.Location.path`. Source: google/protobuf/descriptor.proto.
const PACKAGE_STATEMENT: i32 = 2;
const FILE_MESSAGES: i32 = 4;
const FILE_ENUMS: i32 = 5;
const FILE_SERVICES: i32 = 6;
const MESSAGE_FIELDS: i32 = 2;
const MESSAGE_MESSAGES: i32 = 3;
const MESSAGE_ENUMS: i32 = 4;
const ENUM_VALUES: i32 = 2;
const SERVICE_METHODS: i32 = 2;

pub(crate) fn page(files: &FileDescriptorSet) -> String {
    let files: Vec<_> = files.file.iter().filter(|file| file.package() == PACKAGE).collect();
    // The file that the other files share comes first.
    let (common, services): (Vec<&FileDescriptorProto>, Vec<_>) =
        files.into_iter().partition(|file| file.service.is_empty());
    let mut page = HEAD.to_owned();
    for file in common.into_iter().chain(services) {
        Section::of(file).write(&mut page);
    }
    page
}

/// The values of an enum, each with its comment in one line.
pub(crate) fn values(files: &FileDescriptorSet, name: &str) -> Vec<(String, String)> {
    let files = files.file.iter().filter(|file| file.package() == PACKAGE);
    let mut all = Vec::new();
    for file in files {
        let section = Section::of(file);
        for (at, one) in file.enum_type.iter().enumerate().filter(|(_, one)| one.name() == name) {
            let place = SourcePath::root().child(FILE_ENUMS, at, name);
            let comment = |at| section.cell(&place.child(ENUM_VALUES, at, "").path);
            all.extend(
                one.value.iter().enumerate().map(|(at, value)| (value.name().to_owned(), comment(at))),
            );
        }
    }
    all
}

struct Section<'a> {
    file: &'a FileDescriptorProto,
    comments: Comments,
}

/// The position of an element in its file, and its name within the package.
#[derive(Clone)]
struct SourcePath {
    path: Vec<i32>,
    name: String,
}

impl SourcePath {
    fn root() -> Self {
        Self { path: Vec::new(), name: String::new() }
    }

    fn child(&self, kind: i32, at: usize, name: &str) -> Self {
        let path = [&self.path[..], &[kind, i32::try_from(at).unwrap_or(i32::MAX)]].concat();
        let name = if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) };
        Self { path, name }
    }
}

impl<'a> Section<'a> {
    fn of(file: &'a FileDescriptorProto) -> Self {
        Self { file, comments: Comments::of(file) }
    }

    fn write(&self, page: &mut String) {
        let short = self.file.name().rsplit('/').next().unwrap_or_default();
        line(page, &format!("\n## {short}"));
        self.text(page, &[PACKAGE_STATEMENT]);
        let root = SourcePath::root();
        for (at, service) in self.file.service.iter().enumerate() {
            self.service(page, service, &root.child(FILE_SERVICES, at, service.name()));
        }
        for (at, message) in self.file.message_type.iter().enumerate() {
            self.message(page, message, &root.child(FILE_MESSAGES, at, message.name()));
        }
        for (at, one) in self.file.enum_type.iter().enumerate() {
            self.enumeration(page, one, &root.child(FILE_ENUMS, at, one.name()));
        }
    }

    fn service(&self, page: &mut String, service: &ServiceDescriptorProto, place: &SourcePath) {
        line(page, &format!("\n### {}", place.name));
        self.text(page, &place.path);
        for (at, method) in service.method.iter().enumerate() {
            let method_place = place.child(SERVICE_METHODS, at, method.name());
            line(page, &format!("\n#### {}", method_place.name));
            line(page, &format!("\n{}", signature(method)));
            self.text(page, &method_place.path);
        }
    }

    fn message(&self, page: &mut String, message: &DescriptorProto, place: &SourcePath) {
        line(page, &format!("\n### {}", place.name));
        self.text(page, &place.path);
        for choice in choices(message) {
            line(page, &format!("\nOne of {choice}."));
        }
        if !message.field.is_empty() {
            line(page, "\n| | field | type | |\n| --: | --- | --- | --- |");
        }
        let types = Types { message };
        for (at, field) in message.field.iter().enumerate() {
            let path = place.child(MESSAGE_FIELDS, at, "").path;
            let (number, name, kind) = (field.number(), field.name(), types.words(field));
            line(page, &format!("| {number} | `{name}` | {kind} | {}", last_cell(&self.cell(&path))));
        }
        for (at, nested) in message.nested_type.iter().enumerate() {
            if !types::is_map_entry(nested) {
                self.message(page, nested, &place.child(MESSAGE_MESSAGES, at, nested.name()));
            }
        }
        for (at, nested) in message.enum_type.iter().enumerate() {
            self.enumeration(page, nested, &place.child(MESSAGE_ENUMS, at, nested.name()));
        }
    }

    fn enumeration(&self, page: &mut String, one: &EnumDescriptorProto, place: &SourcePath) {
        line(page, &format!("\n### {}", place.name));
        self.text(page, &place.path);
        line(page, "\n| | value | |\n| --: | --- | --- |");
        for (at, value) in one.value.iter().enumerate() {
            let path = place.child(ENUM_VALUES, at, "").path;
            let (number, name) = (value.number(), value.name());
            line(page, &format!("| {number} | `{name}` | {}", last_cell(&self.cell(&path))));
        }
    }

    /// A comment as separate paragraphs.
    fn text(&self, page: &mut String, path: &[i32]) {
        if let Some(comment) = self.comments.at(path) {
            line(page, &format!("\n{comment}"));
        }
    }

    /// Returns a comment in one line, for a cell of a table. The cell is empty if the element has no comment, because its name and type say
    /// everything.
    fn cell(&self, path: &[i32]) -> String {
        let comment = self.comments.at(path).unwrap_or_default();
        let words: Vec<&str> = comment.split_whitespace().collect();
        words.join(" ").replace('|', "\\|")
    }
}

/// Returns the last cell of a row, with only one blank if the text is empty.
pub(crate) fn last_cell(text: &str) -> String {
    if text.is_empty() { "|".to_owned() } else { format!("{text} |") }
}

/// The fields of each `oneof`, of which only one may be set.
fn choices(message: &DescriptorProto) -> Vec<String> {
    let index = |field: &FieldDescriptorProto| field.oneof_index.filter(|_| !field.proto3_optional());
    let mut choices: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for field in &message.field {
        if let Some(at) = index(field) {
            choices.entry(at).or_default().push(format!("`{}`", field.name()));
        }
    }
    choices.into_values().map(|names| names.join(", ")).collect()
}

fn signature(method: &MethodDescriptorProto) -> String {
    let stream = |streams: bool| if streams { "stream of " } else { "" };
    let (input, output) = (types::link(method.input_type()), types::link(method.output_type()));
    let (asks, answers) = (stream(method.client_streaming()), stream(method.server_streaming()));
    format!("{asks}{input} → {answers}{output}")
}

fn line(page: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(page, "{text}").is_ok();
}

#[cfg(test)]
mod tests;
