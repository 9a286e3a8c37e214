//! The terminal, given back however this ends.

use std::io::{self, Stdout, Write, stdin, stdout};
use std::mem::ManuallyDrop;
use std::sync::{Mutex, Once, PoisonError};

use ratatui::backend::TermionBackend;
use ratatui::{Frame, Terminal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Changes to the alternate screen, and hides the cursor (xterm's control sequences).
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";

/// Goes back to the usual screen, and shows the cursor.
const LEAVE: &[u8] = b"\x1b[?1049l\x1b[?25h";

/// The settings of the terminal before it was taken.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The screen of a program that has it to itself. The terminal is as before when this is dropped, and before a panic
/// is told.
///
/// What ratatui does at the end is not done: it complains on standard error, and panics where that is gone, too.
pub struct Screen(ManuallyDrop<Terminal<TermionBackend<Stdout>>>);

/// Gives the terminal back on drop.
struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// The terminal as it was. A terminal that is gone needs nothing.
fn give_back() {
    let _ = write(LEAVE);
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

fn write(sequences: &[u8]) -> io::Result<()> {
    let mut output = stdout().lock();
    output.write_all(sequences)?;
    output.flush()
}

/// Makes the terminal pass on each key at once, without an echo.
fn make_raw() -> io::Result<()> {
    let mut settings = tcgetattr(stdin())?;
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings.clone());
    settings.make_raw();
    Ok(tcsetattr(stdin(), OptionalActions::Now, &settings)?)
}

impl Screen {
    /// Takes the terminal.
    pub fn open() -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                told(panic);
            }));
        });
        make_raw()?;
        let taken = Taken;
        write(ENTER)?;
        let terminal = Terminal::new(TermionBackend::new(stdout()))?;
        // From here on it is the screen's.
        std::mem::forget(taken);
        Ok(Screen(ManuallyDrop::new(terminal)))
    }

    /// Draws what has changed, at the size that the terminal has now.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}
