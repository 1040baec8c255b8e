//! The OpenAPI description of the REST API, generated from the table of routes and the types in [`schema`].
//!
//! `agent/server/openapi.json` has the same description, so that a review shows each change of the contract.

pub mod schema;

use serde_json::{Value, json};
use utoipa::{
    ToSchema,
    openapi::{
        Components, ComponentsBuilder, Content, Header, Info, Object, OpenApi, Paths, Ref, RefOr, Required, Schema,
        SecurityRequirement,
        header::HeaderBuilder,
        path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        response::ResponseBuilder,
        schema::{ArrayBuilder, KnownFormat, ObjectBuilder, SchemaFormat, Type},
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use super::requirement::RouteRequirement;

const ABOUT: &str = "API of the agent. Live data comes over the WebSocket /ws. Times are milliseconds since 1970 by \
    the agent's clock. Messages are in English. A message with translations has a Text beside it, in a field whose \
    name ends in `_text`. A reading is a value, or {\"missing\": reason} if the GPU does not report it.";
const ABOUT_TOKENS: &str = "From pairing or `headroom token add`. It is never sent in an address or a cookie. A token \
    has the scope view or control.";
/// Statuses of refusals that every route can send: a malformed request, a foreign host or origin, an error of the agent,
/// and too many requests in progress or unusable history.
const REFUSALS_OF_ALL: &[u16] = &[400, 403, 500, 503];
/// The name of the security scheme.
const TOKEN: &str = "token";

/// Returns the description of methods, paths and operations as JSON text.
pub fn json<'a>(operations: impl IntoIterator<Item = (&'a str, &'a str, Operation)>) -> String {
    let mut document = serde_json::to_value(document(operations)).unwrap_or_default();
    simplify(&mut document);
    document.to_string()
}

/// The description of a route, except for what follows from its method, path and requirement.
pub struct Description(OperationBuilder);

/// Creates the description of a route.
pub fn describe(id: &str, summary: &str) -> Description {
    Description(OperationBuilder::new().operation_id(Some(id)).summary(Some(summary)))
}

impl Description {
    /// Adds details to the summary.
    pub fn details(self, details: &str) -> Self {
        Self(self.0.description(Some(details)))
    }

    /// Adds a parameter in the query or in a header.
    pub fn takes(self, parameter: ParameterBuilder) -> Self {
        Self(self.0.parameter(parameter))
    }

    /// Adds a JSON body, and the refusals of all routes with a body.
    pub fn reads(self, schema: impl Into<RefOr<Schema>>) -> Self {
        let body = RequestBodyBuilder::new().content("application/json", Content::new(Some(schema)));
        Self(self.0.request_body(Some(body.required(Some(Required::True)).build()))).refuses(&[408, 413])
    }

    /// Adds a response.
    pub fn answers(self, status: u16, response: ResponseBuilder) -> Self {
        let response = with_request_id(response);
        Self(self.0.response(status.to_string(), response))
    }

    /// Adds the statuses of refusals that not every route has.
    pub fn refuses(self, statuses: &[u16]) -> Self {
        let refused = |operation: OperationBuilder, status: &u16| {
            operation.response(status.to_string(), Ref::from_response_name("Refused"))
        };
        Self(statuses.iter().fold(self.0, refused))
    }

    /// Adds the refusals of all routes, and what the requirement of the route implies.
    pub fn operation(self, needs: RouteRequirement) -> Operation {
        let described = self.refuses(REFUSALS_OF_ALL);
        let described = match needs {
            RouteRequirement::Nothing => described,
            RouteRequirement::Origin => described.refuses(&[429]),
            RouteRequirement::Token(_) => described.refuses(&[401, 429]),
        };
        let is_public = !matches!(needs, RouteRequirement::Token(_));
        described.0.securities(is_public.then_some([])).build()
    }
}

/// Creates a response without content.
pub fn empty(description: &str) -> ResponseBuilder {
    ResponseBuilder::new().description(description)
}

/// Creates a response with a JSON value.
pub fn with_json(description: &str, schema: impl Into<RefOr<Schema>>) -> ResponseBuilder {
    with_content(description, "application/json", schema)
}

/// Creates a response with content of another type.
pub fn with_content(description: &str, content_type: &str, schema: impl Into<RefOr<Schema>>) -> ResponseBuilder {
    empty(description).content(content_type, Content::new(Some(schema)))
}

/// Returns a reference to the description of a response header, such as an entity tag.
pub fn tag(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

/// Adds the header that each response has.
fn with_request_id(response: ResponseBuilder) -> ResponseBuilder {
    response.header_ref("X-Request-Id", tag("RequestId"))
}

/// Creates an optional parameter of the query.
pub fn query(name: &str, schema: impl Into<RefOr<Schema>>) -> ParameterBuilder {
    ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).schema(Some(schema))
}

/// Creates an optional header of the request.
pub fn header(name: &str, description: &str, schema: impl Into<RefOr<Schema>>) -> ParameterBuilder {
    let header = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
    header.description(Some(description)).schema(Some(schema))
}

/// Creates a header of a response.
pub fn response_header(description: &str, schema: ObjectBuilder) -> Header {
    HeaderBuilder::new().description(Some(description)).schema(Some(schema)).build()
}

/// Returns a reference to the schema of a type.
pub fn of<T: ToSchema>() -> Ref {
    Ref::from_schema_name(T::name())
}

/// Returns the schema of an array.
pub fn array_of<T: ToSchema>() -> ArrayBuilder {
    ArrayBuilder::new().items(of::<T>())
}

/// Returns the schema of any string.
pub fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// Returns the schema of binary data.
pub fn binary() -> Object {
    string().format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary))).build()
}

/// Returns the schema of an integer with inclusive bounds.
pub fn integer(minimum: u64, maximum: u64) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(minimum)).maximum(Some(maximum))
}

/// Returns the names of the query parameters of an operation.
pub fn query_names(operation: &Operation) -> Vec<String> {
    let parameters = operation.parameters.iter().flatten();
    let names = parameters.filter_map(|parameter| match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
        _ => None,
    });
    names.collect()
}

fn document<'a>(operations: impl IntoIterator<Item = (&'a str, &'a str, Operation)>) -> OpenApi {
    let mut paths = Paths::new();
    for (method, path, operation) in operations {
        let item = paths.paths.entry(path.to_owned()).or_default();
        item.parameters = path_parameters(path);
        let place = match method {
            "GET" => &mut item.get,
            "PUT" => &mut item.put,
            "POST" => &mut item.post,
            _ => &mut item.delete,
        };
        *place = Some(operation);
    }
    let mut info = Info::new("Headroom's agent", "1");
    info.description = Some(ABOUT.to_owned());
    let mut document = OpenApi::new(info, paths);
    document.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(TOKEN, [])]);
    document.components = Some(components());
    document
}

/// Returns the parameters in a path.
fn path_parameters(path: &str) -> Option<Vec<RefOr<Parameter>>> {
    if path.contains("{id}") {
        return Some(vec![RefOr::Ref(Ref::new("#/components/parameters/Run"))]);
    }
    let event = ParameterBuilder::new()
        .name("event")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("Number of the event that raised the alert."))
        .schema(Some(integer(1, u64::MAX)));
    path.contains("{event}").then(|| vec![event.build().into()])
}

fn components() -> Components {
    let run = ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(string().pattern(Some("^[0-9A-Za-z]{1,64}$"))));
    let id = "The ID of the request. Each log line of the agent about the request contains it.";
    let checkpoint = "Strong ETag of this file. The next checkpoint has another one.";
    let refused = with_request_id(with_json("The reason for the rejection.", of::<schema::Refusal>()));
    let mut scheme = Http::new(HttpAuthScheme::Bearer);
    scheme.description = Some(ABOUT_TOKENS.to_owned());
    let mut components = schema::add_all(ComponentsBuilder::new())
        .parameter("Run", run.build())
        .header("RequestId", response_header(id, string().pattern(Some("^[0-9a-f]{16}$"))))
        .header("CheckpointTag", response_header(checkpoint, string()))
        .header("SettingsTag", response_header("Strong ETag of these settings.", string()))
        .response("Refused", refused)
        .build();
    components.add_security_scheme(TOKEN, SecurityScheme::Http(scheme));
    components
}

/// Removes what derived schemas state beyond the contract: widths of numbers, and parameters that are not required. A
/// value that has to be one of one is a constant. Line breaks of doc comments are spaces.
fn simplify(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(simplify),
        Value::Object(fields) => {
            let types = fields.get("type").cloned();
            let is = |name: &str| types == Some(json!(name)) || types == Some(json!([name, "null"]));
            if is("number") || is("integer") {
                let has_format = fields.remove("format").is_some();
                if has_format && is("integer") && fields.get("minimum") == Some(&json!(0)) {
                    fields.remove("minimum");
                }
            }
            if fields.get("required") == Some(&json!(false)) {
                fields.remove("required");
            }
            if let Some([name]) = fields.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
                let name = name.clone();
                fields.remove("enum");
                fields.insert("const".to_owned(), name);
            }
            if let Some(Value::String(description)) = fields.get_mut("description") {
                *description = description.replace('\n', " ");
            }
            fields.values_mut().for_each(simplify);
        }
        _ => {}
    }
}
