//! The rules of scripts that are run by FastCGI.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::Spanned;

use super::{Check, rules};
use crate::model::{Action, FastCgi, Otherwise, Proxy};
use crate::raw;
use crate::resource::Resource;

/// The end of the names of scripts, if the configuration does not say.
const SPLIT: &str = ".php";

impl Check<'_> {
    /// Whether a route serves files, and has another action for requests without a file.
    pub(super) fn otherwise(&mut self, route: &raw::Route) -> bool {
        let Some(files) = &route.files else { return false };
        let Some(otherwise) = files.get_ref().otherwise else { return false };
        let place = self.within(&files.span(), &["otherwise"]);
        let (name, is_there) = match otherwise {
            Otherwise::Proxy => ("proxy", route.proxy.is_some() && route.fastcgi.is_none()),
            Otherwise::FastCgi => ("fastcgi", route.fastcgi.is_some() && route.proxy.is_none()),
        };
        let has_more =
            route.redirect.is_some() || route.channel.is_some() || route.mercure.is_some();
        if !is_there || has_more {
            let what = format!("the route has not files and {name} alone");
            self.missing(
                place,
                format!("{what}, expected {name} = {{ upstream = NAME }} next to files"),
            );
            return false;
        }
        let split = route.fastcgi.as_ref().map(|fastcgi| {
            let split = fastcgi.get_ref().split.as_ref().map(|split| split.get_ref().clone());
            split.unwrap_or_else(|| SPLIT.to_owned())
        });
        let is_script = |name: &&String| {
            let end = split.as_ref().map(|split| split.to_ascii_lowercase());
            end.is_some_and(|end| name.to_ascii_lowercase().ends_with(&end))
        };
        if let Some(name) = files.get_ref().index.iter().find(is_script) {
            let what = format!("the index file {name:?} is a script, which is never sent");
            let place = self.within(&files.span(), &["index"]);
            self.wrong(place, format!("{what}, expected it as index of fastcgi"));
        }
        if files.get_ref().listing {
            let what = "a folder has two answers";
            let place = self.within(&files.span(), &["listing"]);
            self.wrong(place, format!("{what}, expected listing or otherwise"));
        }
        if files.get_ref().fallback.is_some() {
            let what = "a path without a file has two answers";
            self.wrong(place, format!("{what}, expected fallback or otherwise"));
        }
        true
    }

    /// Checks texts of fields, and what replaces them.
    pub(super) fn replacements(
        &mut self,
        raw: BTreeMap<Spanned<String>, Spanned<String>>,
    ) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (from, to) in raw {
            let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
            for text in [(from.span(), from.get_ref()), (to.span(), to.get_ref())] {
                if !is_text(text.1) || text.1.contains(';') {
                    let what = format!("{:?} is no part of a field", text.1);
                    self.wrong(text.0, format!("{what}, expected visible characters of ASCII"));
                }
            }
            if from.get_ref().is_empty() {
                self.wrong(from.span(), "nothing would be replaced, expected a text");
            }
            all.insert(from.into_inner(), to.into_inner());
        }
        all
    }

    /// Checks the folders of which servers may ask for files.
    pub(super) fn send_files(
        &mut self,
        raw: BTreeMap<Spanned<String>, Spanned<PathBuf>>,
    ) -> BTreeMap<String, PathBuf> {
        let mut folders = BTreeMap::new();
        for (path, folder) in raw {
            self.path(path.span(), path.get_ref());
            let place = folder.span();
            let folder = self.resolved(folder.into_inner());
            self.needs(place, Resource::Folder(folder.clone()));
            folders.insert(path.into_inner(), folder);
        }
        folders
    }

    pub(super) fn fastcgi(&mut self, fastcgi: Spanned<raw::FastCgi>) -> Option<Action> {
        let (place, fastcgi) = (fastcgi.span(), fastcgi.into_inner());
        let Some(upstream) = fastcgi.upstream else {
            self.missing(place, "fastcgi without an upstream, expected upstream = NAME");
            return None;
        };
        self.defined_upstream(upstream.span(), upstream.get_ref());
        self.script_upstreams.insert(upstream.get_ref().clone());
        let of_upstream = upstream.span();
        let root = fastcgi.root.map(|root| {
            let place = root.span();
            let root = self.resolved(root.into_inner());
            self.needs(place, Resource::Folder(root.clone()));
            root
        });
        if let (None, Some(other)) = (&root, &fastcgi.server_root) {
            let what = "server_root says how servers see the folder root, which is not there";
            self.wrong(other.span(), format!("{what}, expected root next to it"));
        }
        let index = fastcgi.index.map_or_else(
            || "index.php".to_owned(),
            |index| {
                if index.get_ref().is_empty() || index.get_ref().contains(['/', '\0']) {
                    let what =
                        format!("the index script {:?} is no name of a file", index.get_ref());
                    self.wrong(index.span(), format!("{what}, expected one as \"index.php\""));
                }
                index.into_inner()
            },
        );
        let split = fastcgi.split.map_or_else(
            || SPLIT.to_owned(),
            |split| {
                let text = split.get_ref();
                if !text.starts_with('.') || text.len() < 2 || text.contains(['/', '\0']) {
                    let what = format!("{text:?} is no end of the names of scripts");
                    self.wrong(split.span(), format!("{what}, expected one as \".php\""));
                }
                split.into_inner()
            },
        );
        if !index.ends_with(&split) {
            let what = format!("the index script {index:?} does not end with split, {split:?}");
            let place = self.within(&place, &["index"]);
            self.wrong(place, format!("{what}, expected the end of the names of all scripts"));
        }
        let mut params = BTreeMap::new();
        for (name, value) in fastcgi.params {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let text = name.get_ref();
            if text.is_empty() || !text.bytes().all(is_name) || text == "HTTP_PROXY" {
                let what = format!("{text:?} is no name of a parameter");
                self.wrong(name.span(), format!("{what}, expected one as \"APP_ENV\""));
            }
            if value.get_ref().len() > 32 << 10 {
                let what = format!("the value of {text} has more than 32 KiB");
                self.wrong(value.span(), format!("{what}, expected less"));
            }
            params.insert(name.into_inner(), value.into_inner());
        }
        let proxy = Proxy {
            retries: fastcgi.retries.unwrap_or(1),
            trust_forwarded: fastcgi.trust_forwarded,
            abort_on_close: fastcgi.abort_on_close.unwrap_or(true),
            request_headers: self.headers(fastcgi.request_headers, rules::Of::Requests),
            replace_errors: fastcgi.replace_errors,
            compress: fastcgi.compress,
            send_files: self.send_files(fastcgi.send_files),
            grip: fastcgi.grip.and_then(|grip| self.grip(grip)),
            ..Proxy::to(upstream.into_inner())
        };
        self.may_hold(of_upstream, &proxy);
        let server_root = fastcgi.server_root.map(Spanned::into_inner);
        let spool = fastcgi.spool;
        let config = FastCgi { proxy, root, server_root, index, split, params, spool };
        Some(Action::FastCgi(Box::new(config)))
    }
}
