//! The logs.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;

use super::Check;
use crate::log_field::Field;
use crate::logs::{AccessLog, Log, LogFormat};
use crate::raw;
use crate::syslog::{Syslog, SyslogServer};

impl Check<'_> {
    /// Checks the access log.
    pub(super) fn access_log(&mut self, raw: Spanned<raw::AccessLog>) -> AccessLog {
        let place = raw.span();
        let raw::AccessLog { path, syslog, format, fields } = raw.into_inner();
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
        let path = self.log(place.clone(), path.unwrap_or(usual.path));
        let syslog = syslog.map(|syslog| self.syslog(syslog.span(), syslog.into_inner(), &path));
        AccessLog { path, syslog, format, fields }
    }

    /// Checks the log of events.
    pub(super) fn error_log(&mut self, raw: Spanned<Log>) -> Log {
        let (place, mut log) = (raw.span(), raw.into_inner());
        log.path = self.log(place.clone(), log.path);
        let at = self.within(&place, &["syslog"]);
        log.syslog = log.syslog.map(|syslog| self.syslog(at, syslog, &log.path));
        log
    }

    /// Checks the syslog server of a log, which has this path.
    fn syslog(&mut self, place: Range<usize>, mut syslog: Syslog, path: &Path) -> Syslog {
        if path != Path::new("stderr") {
            let what = format!("the log has the file {} as well", path.display());
            self.wrong(place.clone(), format!("{what}, expected either path or syslog"));
        }
        if let SyslogServer::Unix(socket) = syslog.server {
            syslog.server = SyslogServer::Unix(self.socket_path(place, socket));
        }
        syslog
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
