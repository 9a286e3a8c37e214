//! The terminal, which is restored however the program ends.

use std::io::{self, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::sync::Once;

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

/// The screen of a program that has the terminal to itself. The terminal is restored when this is
/// dropped, and before a panic message is printed.
///
/// The clean-up of ratatui is skipped: it complains on standard error, and panics where that is
/// gone, too.
pub struct Screen(ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>);

/// Restores the terminal on drop.
struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal. A terminal that is gone needs nothing.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
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
        enable_raw_mode()?;
        let taken = Taken;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        // From here on it is the screen's.
        std::mem::forget(taken);
        Ok(Screen(ManuallyDrop::new(terminal)))
    }

    /// Draws the changes, at the size that the terminal has now.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}
