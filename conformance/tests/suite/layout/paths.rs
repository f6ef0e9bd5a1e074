//! The paths in an item's code, including those inside of macro calls and attributes.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro};

use super::tree;

/// A path as written, without generics.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Written(pub(crate) Vec<String>);

impl Written {
    pub(crate) fn parsed(path: &str) -> Self {
        Self(path.split("::").map(str::to_owned).collect())
    }
}

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("::"))
    }
}

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) paths: Vec<Written>,
    /// Imports inside of functions.
    pub(crate) imports: Vec<ItemUse>,
}

pub(crate) fn in_item(item: &Item) -> Found {
    let mut found = Found::default();
    found.visit_item(item);
    found
}

impl Found {
    fn in_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 || path.is_empty() {
                        self.end(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.in_tokens(group.stream()),
                TokenTree::Literal(literal) => self.in_text(&literal.to_string()),
                TokenTree::Punct(_) => {}
            }
            self.end(&mut path);
            colons = 0;
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        if !path.is_empty() {
            self.paths.push(Written(std::mem::take(path)));
        }
    }

    /// A path in quotes, as in `#[serde(with = "crate::hex")]`.
    fn in_text(&mut self, literal: &str) {
        let text = literal.trim_matches('"');
        let is_path = text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
        if is_path && text.contains("::") {
            self.paths.push(Written::parsed(text));
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.paths.push(Written(names.collect()));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, makes: &'ast Macro) {
        self.in_tokens(makes.tokens.clone());
        visit::visit_macro(self, makes);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        match &attribute.meta {
            syn::Meta::List(list) => self.in_tokens(list.tokens.clone()),
            syn::Meta::Path(_) | syn::Meta::NameValue(_) => {}
        }
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        self.imports.push(import.clone());
    }

    fn visit_item(&mut self, item: &'ast Item) {
        if !tree::tests_only(tree::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, method: &'ast syn::ImplItemFn) {
        if !tree::tests_only(&method.attrs) {
            visit::visit_impl_item_fn(self, method);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !tree::tests_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }
}
