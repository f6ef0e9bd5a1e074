//! The modules of a crate: their definitions, their imports, and the paths that they use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree, Visibility};

use super::paths::{self, Written};

/// The meaning of a name in a module.
pub(crate) enum Entry {
    Module(usize),
    Item,
    Import(Written),
}

pub(crate) struct Name {
    pub(crate) entry: Entry,
    /// Visible only to the module and its descendants.
    pub(crate) private: bool,
}

#[derive(Default)]
pub(crate) struct Module {
    pub(crate) path: String,
    pub(crate) parent: Option<usize>,
    pub(crate) names: HashMap<String, Vec<Name>>,
    pub(crate) globs: Vec<(Written, bool)>,
    /// Every path in the module's items, including imports.
    pub(crate) paths: Vec<Written>,
}

#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) modules: Vec<Module>,
}

/// The folder of the files of a module's children.
#[derive(Clone)]
struct Place {
    /// The folder of the source file, to which `#[path]` is relative outside of inline modules.
    file: PathBuf,
    children: PathBuf,
    inline: bool,
}

impl Tree {
    /// Reads the modules below a crate's root file.
    pub(crate) fn read(root: &Path) -> Self {
        let folder = root.parent().unwrap().to_owned();
        let mut tree = Self::default();
        let place = Place { file: folder.clone(), children: folder, inline: false };
        tree.add(None, "crate".to_owned(), &parsed(root).items, &place);
        tree
    }

    /// Reads the modules of a source that contains only inline modules.
    pub(crate) fn of_source(source: &str) -> Self {
        let mut tree = Self::default();
        let nowhere = Place { file: PathBuf::new(), children: PathBuf::new(), inline: true };
        tree.add(None, "crate".to_owned(), &syn::parse_file(source).unwrap().items, &nowhere);
        tree
    }

    fn add(&mut self, parent: Option<usize>, path: String, items: &[Item], place: &Place) -> usize {
        let id = self.modules.len();
        self.modules.push(Module { path, parent, ..Module::default() });
        for item in items {
            if tests_only(attributes(item)) {
                continue;
            }
            match item {
                Item::Mod(module) => self.add_child(id, module, place),
                Item::Macro(makes) => {
                    let (name, private) = (makes.ident.as_ref(), !exported(&makes.attrs));
                    if let Some(name) = name {
                        let home = if private { id } else { 0 };
                        self.define(id, name.to_string(), Entry::Item, private);
                        if home != id {
                            let path = format!("{}::{name}", self.modules[id].path);
                            self.define(0, name.to_string(), Entry::Import(Written::parsed(&path)), false);
                        }
                    }
                    self.modules[id].paths.extend(paths::in_item(item).paths);
                }
                Item::Use(import) => self.import(id, import),
                _ => {
                    if let Some((name, visibility)) = named(item) {
                        self.define(id, name, Entry::Item, inherited(visibility));
                    }
                    let found = paths::in_item(item);
                    self.modules[id].paths.extend(found.paths);
                    found.imports.iter().for_each(|import| self.import(id, import));
                }
            }
        }
        id
    }

    fn add_child(&mut self, parent: usize, module: &syn::ItemMod, place: &Place) {
        let name = module.ident.to_string();
        let path = format!("{}::{name}", self.modules[parent].path);
        let given = given_path(&module.attrs);
        let id = match (&module.content, given) {
            (Some((_, items)), given) => {
                let folder = place.children.join(given.unwrap_or_else(|| name.clone()));
                let inner = Place { file: place.file.clone(), children: folder, inline: true };
                self.add(Some(parent), path, items, &inner)
            }
            (None, Some(given)) => {
                let from = if place.inline { &place.children } else { &place.file };
                self.add_file(parent, path, &from.join(given), true)
            }
            (None, None) => {
                let flat = place.children.join(format!("{name}.rs"));
                let nested = place.children.join(&name).join("mod.rs");
                let owns = !flat.exists();
                self.add_file(parent, path, if owns { &nested } else { &flat }, owns)
            }
        };
        self.define(parent, name, Entry::Module(id), inherited(&module.vis));
    }

    /// Reads a file's module. The children of a module that owns its folder are next to it.
    fn add_file(&mut self, parent: usize, path: String, file: &Path, owns_folder: bool) -> usize {
        let folder = file.parent().unwrap().to_owned();
        let children = if owns_folder { folder.clone() } else { folder.join(file.file_stem().unwrap()) };
        let place = Place { file: folder, children, inline: false };
        self.add(Some(parent), path, &parsed(file).items, &place)
    }

    fn define(&mut self, module: usize, name: String, entry: Entry, private: bool) {
        self.modules[module].names.entry(name).or_default().push(Name { entry, private });
    }

    fn import(&mut self, module: usize, import: &syn::ItemUse) {
        if import.leading_colon.is_none() && !tests_only(&import.attrs) {
            self.import_tree(module, &mut Vec::new(), &import.tree, inherited(&import.vis));
        }
    }

    fn import_tree(&mut self, module: usize, above: &mut Vec<String>, tree: &UseTree, private: bool) {
        let (segment, name) = match tree {
            UseTree::Path(path) => {
                above.push(path.ident.to_string());
                self.import_tree(module, above, &path.tree, private);
                above.pop();
                return;
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import_tree(module, above, tree, private));
                return;
            }
            UseTree::Glob(_) => {
                self.modules[module].globs.push((Written(above.clone()), private));
                return;
            }
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(name) => (name.ident.to_string(), name.rename.to_string()),
        };
        let mut path = above.clone();
        let mut name = name;
        if segment == "self" {
            if name == "self" {
                name = path.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(segment);
        }
        self.define(module, name, Entry::Import(Written(path.clone())), private);
        self.modules[module].paths.push(Written(path));
    }
}

fn parsed(file: &Path) -> syn::File {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn inherited(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Inherited)
}

fn exported(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("macro_export"))
}

fn given_path(attributes: &[Attribute]) -> Option<String> {
    let given = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &given.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
        _ => None,
    }
}

/// Returns `true` if an item is compiled for tests only.
pub(crate) fn tests_only(attributes: &[Attribute]) -> bool {
    fn needs_test(meta: &syn::Meta) -> bool {
        let all = |list: &syn::MetaList| {
            let parts = list
                .parse_args_with(syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated);
            parts.is_ok_and(|parts| parts.iter().any(needs_test))
        };
        match meta {
            syn::Meta::Path(path) => path.is_ident("test"),
            syn::Meta::List(list) => list.path.is_ident("all") && all(list),
            syn::Meta::NameValue(_) => false,
        }
    }
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Meta>().is_ok_and(|meta| needs_test(&meta))
    })
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn named(item: &Item) -> Option<(String, &Visibility)> {
    let (name, visibility) = match item {
        Item::Const(it) => (&it.ident, &it.vis),
        Item::Enum(it) => (&it.ident, &it.vis),
        Item::Fn(it) => (&it.sig.ident, &it.vis),
        Item::Static(it) => (&it.ident, &it.vis),
        Item::Struct(it) => (&it.ident, &it.vis),
        Item::Trait(it) => (&it.ident, &it.vis),
        Item::Type(it) => (&it.ident, &it.vis),
        Item::Union(it) => (&it.ident, &it.vis),
        _ => return None,
    };
    Some((name.to_string(), visibility))
}
