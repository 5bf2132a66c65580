//! The contract as a page to read: services, messages and enums with their comments, in the order of the files. Pure.

mod comments;
mod types;

use std::fmt::Write as _;

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
};

use self::{comments::Comments, types::Types};

/// The package whose files are shown; what they import is not.
const PACKAGE: &str = "cloudadapter.v1alpha1";

const HEAD: &str = "# The contract

<!-- Written by `cargo xtask codegen` from the .proto files: change those. -->

Package `cloudadapter.v1alpha1`, as the comments of its [files](../../cloud-api-proto/proto/cloudadapter/v1alpha1/) say. How to serve it is told
in [Write an adapter](../write-an-adapter.md).
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

/// The page.
pub(crate) fn page(files: &FileDescriptorSet) -> String {
    let files: Vec<_> = files.file.iter().filter(|file| file.package() == PACKAGE).collect();
    // What all share comes first.
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
            let place = Place::root().child(FILE_ENUMS, at, name);
            let comment = |at| section.cell(&place.child(ENUM_VALUES, at, "").path, None);
            all.extend(
                one.value.iter().enumerate().map(|(at, value)| (value.name().to_owned(), comment(at))),
            );
        }
    }
    all
}

/// One file.
struct Section<'a> {
    file: &'a FileDescriptorProto,
    comments: Comments,
}

/// Where a thing stands in its file, and what it is called within the package.
#[derive(Clone)]
struct Place {
    path: Vec<i32>,
    name: String,
}

impl Place {
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
        let root = Place::root();
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

    fn service(&self, page: &mut String, service: &ServiceDescriptorProto, place: &Place) {
        line(page, &format!("\n### {}", place.name));
        self.text(page, &place.path);
        for (at, method) in service.method.iter().enumerate() {
            let method_place = place.child(SERVICE_METHODS, at, method.name());
            line(page, &format!("\n#### {}", method_place.name));
            line(page, &format!("\n{}", signature(method)));
            self.text(page, &method_place.path);
        }
    }

    fn message(&self, page: &mut String, message: &DescriptorProto, place: &Place) {
        line(page, &format!("\n### {}", place.name));
        self.text(page, &place.path);
        if !message.field.is_empty() {
            line(page, "\n| | field | type | |\n| --: | --- | --- | --- |");
        }
        let types = Types { message };
        for (at, field) in message.field.iter().enumerate() {
            let path = place.child(MESSAGE_FIELDS, at, "").path;
            let (number, name, kind) = (field.number(), field.name(), types.words(field));
            line(
                page,
                &format!("| {number} | `{name}` | {kind} | {} |", self.cell(&path, choice(message, field))),
            );
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

    fn enumeration(&self, page: &mut String, one: &EnumDescriptorProto, place: &Place) {
        line(page, &format!("\n### {}", place.name));
        self.text(page, &place.path);
        line(page, "\n| | value | |\n| --: | --- | --- |");
        for (at, value) in one.value.iter().enumerate() {
            let path = place.child(ENUM_VALUES, at, "").path;
            line(page, &format!("| {} | `{}` | {} |", value.number(), value.name(), self.cell(&path, None)));
        }
    }

    /// A comment as paragraphs of its own.
    fn text(&self, page: &mut String, path: &[i32]) {
        if let Some(comment) = self.comments.at(path) {
            line(page, &format!("\n{comment}"));
        }
    }

    /// A comment in one line of a table, after what is known without it.
    fn cell(&self, path: &[i32], before: Option<String>) -> String {
        let comment = self.comments.at(path).unwrap_or_default();
        let words: Vec<&str> = comment.split_whitespace().collect();
        let comment = words.join(" ").replace('|', "\\|");
        before.map_or_else(|| comment.clone(), |before| format!("{before} {comment}"))
    }
}

/// Says that only one of several fields is set.
fn choice(message: &DescriptorProto, field: &FieldDescriptorProto) -> Option<String> {
    let at = usize::try_from(field.oneof_index.filter(|_| !field.proto3_optional())?).ok()?;
    message.oneof_decl.get(at).map(|one| format!("*One of `{}`.*", one.name()))
}

fn signature(method: &MethodDescriptorProto) -> String {
    let stream = |streams: bool| if streams { "stream of " } else { "" };
    let (input, output) = (types::link(method.input_type()), types::link(method.output_type()));
    let (asks, answers) = (stream(method.client_streaming()), stream(method.server_streaming()));
    format!("{asks}{input} → {answers}{output}")
}

fn line(page: &mut String, text: &str) {
    // A String takes everything.
    let _infallible = writeln!(page, "{text}").is_ok();
}

#[cfg(test)]
mod tests;
