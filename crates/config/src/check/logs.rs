//! The access log.

use toml::Spanned;

use super::Check;
use crate::log_field::Field;
use crate::logs::{AccessLog, LogFormat};
use crate::raw;

impl Check<'_> {
    /// Checks the access log.
    pub(super) fn access_log(&mut self, raw: Spanned<raw::AccessLog>) -> AccessLog {
        let place = raw.span();
        let raw::AccessLog { path, format, fields } = raw.into_inner();
        if let Some(fields) = &fields
            && format == LogFormat::Combined
        {
            let what = "lines of format \"combined\" have the same fields always, expected fields \
                        only with format = \"json\"";
            self.wrong(fields.span(), what);
        }
        let usual = AccessLog::default();
        let fields = match fields {
            None => usual.fields,
            Some(fields) => self.log_fields(fields),
        };
        let path = path.unwrap_or(usual.path);
        AccessLog { path: self.log(place, path), format, fields }
    }

    fn log_fields(&mut self, raw: Spanned<Vec<Spanned<Field>>>) -> Vec<Field> {
        let place = raw.span();
        let mut fields: Vec<Field> = Vec::new();
        for field in raw.into_inner() {
            let (place, field) = (field.span(), field.into_inner());
            if fields.contains(&field) {
                let name = field.name();
                self.wrong(place, format!("the field {name:?} is listed twice, expected once"));
            } else {
                fields.push(field);
            }
        }
        if fields.is_empty() {
            self.wrong(place, "there is no field, expected at least one");
        }
        fields
    }
}
