//! The attributes `main` and `test` of `superpoll_rt`, which re-exports them.
//!
//! An attribute takes an `async fn` without arguments and makes it a function that blocks on its
//! body: `async` goes, and the body becomes the argument of a call. No more of the function needs
//! to be understood, so its tokens are taken as they are, and the compiler's messages about the
//! body point at the program's own lines.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Makes `async fn main` a program: it builds a runtime and blocks on the body. Options are
/// `workers = NUMBER` (engines), `backend = "NAME"`, `start_paused = true` (a clock that stands
/// still, for tests) and `tokio` (a tokio runtime for libraries, feature `tokio-context`).
///
/// # Panics
///
/// The program panics if the runtime cannot be built.
#[proc_macro_attribute]
pub fn main(options: TokenStream, function: TokenStream) -> TokenStream {
    expand("main", options, function).unwrap_or_else(Refusal::into_error)
}

/// Makes an `async fn` a test, with the options of [`main`].
#[proc_macro_attribute]
pub fn test(options: TokenStream, function: TokenStream) -> TokenStream {
    let expanded = expand("test", options, function);
    let mut tokens = parsed("#[::core::prelude::v1::test]");
    tokens.extend(expanded.unwrap_or_else(Refusal::into_error));
    tokens
}

/// Why an attribute cannot be applied, and where.
struct Refusal {
    at: Span,
    text: String,
}

impl Refusal {
    fn new(at: Span, text: impl Into<String>) -> Refusal {
        Refusal { at, text: text.into() }
    }

    fn into_error(self) -> TokenStream {
        let tokens = parsed(&format!("::core::compile_error! {{ {:?} }}", self.text));
        spanned(tokens, self.at)
    }
}

/// Returns tokens of this crate's own text.
fn parsed(text: &str) -> TokenStream {
    text.parse().expect("the text of this crate is made of tokens")
}

/// Returns the tokens with another place, at which the compiler reports their errors.
fn spanned(tokens: TokenStream, at: Span) -> TokenStream {
    let place = |mut token: TokenTree| {
        if let TokenTree::Group(group) = &token {
            let inner = spanned(group.stream(), at);
            token = TokenTree::Group(Group::new(group.delimiter(), inner));
        }
        token.set_span(at);
        token
    };
    tokens.into_iter().map(place).collect()
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

fn expand(
    attribute: &str,
    options: TokenStream,
    function: TokenStream,
) -> Result<TokenStream, Refusal> {
    let builder = builder(attribute, options)?;
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let Some(fn_at) = tokens.iter().position(|token| is_word(token, "fn")) else {
        let text = format!("#[superpoll_rt::{attribute}] belongs on an `async fn`");
        return Err(Refusal::new(Span::call_site(), text));
    };
    let Some(async_at) = tokens[..fn_at].iter().position(|token| is_word(token, "async")) else {
        let text = format!("#[superpoll_rt::{attribute}] needs `async` before `fn`");
        return Err(Refusal::new(tokens[fn_at].span(), text));
    };
    let arguments = tokens[fn_at..].iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group),
        _ => None,
    });
    if let Some(arguments) = arguments.filter(|arguments| !arguments.stream().is_empty()) {
        let text = format!(
            "a function with #[superpoll_rt::{attribute}] takes no arguments: read \
             `std::env::args` inside"
        );
        return Err(Refusal::new(arguments.span(), text));
    }
    match tokens.pop() {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
            tokens.push(TokenTree::Group(called(builder, body)));
        }
        last => {
            let at = last.map_or_else(Span::call_site, |token| token.span());
            let text = format!("a function with #[superpoll_rt::{attribute}] needs a body");
            return Err(Refusal::new(at, text));
        }
    }
    tokens.remove(async_at);
    Ok(tokens.into_iter().collect())
}

/// Returns `{ block_on(builder, async { body }) }`.
fn called(builder: TokenStream, body: Group) -> Group {
    let span = body.span();
    let mut arguments = builder;
    arguments.extend(parsed(","));
    arguments.extend([TokenTree::Ident(Ident::new("async", span)), TokenTree::Group(body)]);
    let mut call = parsed("::superpoll_rt::__macros::block_on");
    call.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, arguments))]);
    let mut block = Group::new(Delimiter::Brace, call);
    block.set_span(span);
    block
}

/// Returns the builder that the options describe.
fn builder(attribute: &str, options: TokenStream) -> Result<TokenStream, Refusal> {
    let mut tokens = options.into_iter().peekable();
    let mut builder = parsed("::superpoll_rt::Runtime::builder()");
    while let Some(name) = tokens.next() {
        let mut value = None;
        if matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '=') {
            tokens.next();
            value = tokens.next();
        }
        let call = match (name.to_string().as_str(), value) {
            ("workers", Some(value)) => {
                format!(".workers(::superpoll_rt::__macros::workers({value}))")
            }
            ("backend", Some(value)) => {
                format!(".backend(::superpoll_rt::__macros::backend({value}))")
            }
            ("start_paused", Some(value)) => format!(".start_paused({value})"),
            ("tokio", None) => ".tokio(true)".to_owned(),
            _ => {
                let text = format!(
                    "#[superpoll_rt::{attribute}] has the options `workers = NUMBER`, `backend = \
                     \"NAME\"`, `start_paused = BOOL` and `tokio`"
                );
                return Err(Refusal::new(name.span(), text));
            }
        };
        builder.extend(spanned(parsed(&call), name.span()));
        match tokens.next() {
            None => break,
            Some(TokenTree::Punct(punct)) if punct.as_char() == ',' => {}
            Some(other) => return Err(Refusal::new(other.span(), "options are separated by `,`")),
        }
    }
    Ok(builder)
}
