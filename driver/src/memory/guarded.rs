//! Access to memory that may not be there: x86-64 Linux.
//!
//! Every instruction that touches such memory lies between two labels of one piece of assembly.
//! A handler of SIGSEGV and SIGBUS sends a thread that faults there to `ferroce_guarded_fault`,
//! which returns an error to the caller; the routines use no stack, so that nothing has to be
//! undone. Every other signal goes to whoever handled it before.
//!
//! The handler is installed once and never again. A program that replaces it later and calls what
//! was there before (as sanitizers, language runtimes and crash reporters do) keeps our protection;
//! one that does not sees faults of our routines as it would see its own. To install ours again on
//! top of theirs would make the two call each other for ever.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use ferroce_stack::icrc;
use ferroce_stack::memory::{AtomicOp, MemoryFault};

/// The signals a fault arrives as.
pub const FAULT_SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Copies of at least this many bytes take the 32-byte moves where the CPU has them.
const WIDE_FROM: usize = 256;

/// Bytes that are copied and folded at a time.
const BLOCK: usize = 128;

/// Factors by which the two halves of 16 bytes are folded over 128, 64, 32 and 16 bytes.
static FOLDS: [[u64; 2]; 4] = [fold(128), fold(64), fold(32), fold(16)];

/// x to the power of the distance in bits, 32 more for the first half and 32 less for the other,
/// modulo the polynomial of CRC-32: lowest power in the highest bit, and that moved up by one, as
/// products of such numbers come out one lower.
const fn fold(bytes: u32) -> [u64; 2] {
    [power(bytes * 8 + 32) << 1, power(bytes * 8 - 32) << 1]
}

const fn power(exponent: u32) -> u64 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut value: u32 = 1 << 31;
    let mut left = exponent;
    while left > 0 {
        value = value >> 1 ^ (POLYNOMIAL & 0_u32.wrapping_sub(value & 1));
        left -= 1;
    }
    value as u64
}

// System V calling convention; each routine returns 0, or 1 after a fault. All are leaves and
// leave the stack alone. Only moves that x86 keeps in order: no string instruction, no
// non-temporal store. A copy of 8 bytes or more ends with a move that overlaps the one before it.
global_asm!(
    ".pushsection .text.ferroce_guarded,\"ax\",@progbits",
    ".hidden ferroce_guarded_begin",
    ".hidden ferroce_guarded_end",
    ".hidden ferroce_guarded_fault",
    ".hidden ferroce_guarded_copy",
    ".hidden ferroce_guarded_copy_wide",
    ".hidden ferroce_guarded_copy_fold",
    ".hidden ferroce_guarded_store",
    ".hidden ferroce_guarded_compare_swap",
    ".hidden ferroce_guarded_fetch_add",
    ".hidden ferroce_guarded_swap",
    ".hidden ferroce_guarded_load_byte",
    ".hidden ferroce_guarded_touch_byte",
    ".globl ferroce_guarded_begin",
    ".globl ferroce_guarded_end",
    ".globl ferroce_guarded_fault",
    ".globl ferroce_guarded_copy",
    ".globl ferroce_guarded_copy_wide",
    ".globl ferroce_guarded_copy_fold",
    ".globl ferroce_guarded_store",
    ".globl ferroce_guarded_compare_swap",
    ".globl ferroce_guarded_fetch_add",
    ".globl ferroce_guarded_swap",
    ".globl ferroce_guarded_load_byte",
    ".globl ferroce_guarded_touch_byte",
    ".balign 64",
    "ferroce_guarded_begin:",
    ".cfi_startproc",
    // copy_wide(rdi: to, rsi: from, rdx: len >= 32). Its first move aligns the destination.
    "ferroce_guarded_copy_wide:",
    "vmovups ymm0, [rsi]",
    "vmovups [rdi], ymm0",
    "mov eax, edi",
    "and eax, 31",
    "sub rax, 32",
    "sub rdi, rax",
    "sub rsi, rax",
    "add rdx, rax",
    "sub rdx, 128",
    "jb 3f",
    ".balign 32",
    "2:",
    "vmovups ymm0, [rsi]",
    "vmovups ymm1, [rsi + 32]",
    "vmovups ymm2, [rsi + 64]",
    "vmovups ymm3, [rsi + 96]",
    "vmovups [rdi], ymm0",
    "vmovups [rdi + 32], ymm1",
    "vmovups [rdi + 64], ymm2",
    "vmovups [rdi + 96], ymm3",
    "sub rsi, -128",
    "sub rdi, -128",
    "sub rdx, 128",
    "jae 2b",
    "3:",
    "vzeroupper",
    "sub rdx, -128",
    // copy(rdi: to, rsi: from, rdx: len)
    ".balign 32",
    "ferroce_guarded_copy:",
    "cmp rdx, 16",
    "jb 6f",
    "movups xmm4, [rsi + rdx - 16]",
    "lea rcx, [rdi + rdx - 16]",
    "sub rdx, 64",
    "jb 3f",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "jae 2b",
    // rdx is 64 less than what is left: at most three moves of 16, then the last.
    "3:",
    "add rdx, 48",
    "js 5f",
    "4:",
    "movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "add rsi, 16",
    "add rdi, 16",
    "sub rdx, 16",
    "jns 4b",
    "5:",
    "movups [rcx], xmm4",
    "xor eax, eax",
    "ret",
    "6:",
    "cmp edx, 8",
    "jb 7f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx - 8]",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rcx",
    "xor eax, eax",
    "ret",
    // copy_fold(rdi: to, rsi: from, rdx: len, a multiple of BLOCK and not 0, rcx: &FOLDS, r8d: crc,
    // r9: &mut [u8; 16]). What is left of a block is folded onto the next: times x to the power of
    // the distance, modulo the polynomial, each half by its own factor.
    "ferroce_guarded_copy_fold:",
    "vbroadcasti128 ymm8, [rcx]",
    "vmovd xmm9, r8d",
    "vmovdqu ymm0, [rsi]",
    "vmovdqu ymm1, [rsi + 32]",
    "vmovdqu ymm2, [rsi + 64]",
    "vmovdqu ymm3, [rsi + 96]",
    "vmovdqu [rdi], ymm0",
    "vmovdqu [rdi + 32], ymm1",
    "vmovdqu [rdi + 64], ymm2",
    "vmovdqu [rdi + 96], ymm3",
    "vpxor ymm0, ymm0, ymm9",
    "jmp 3f",
    ".balign 32",
    "2:",
    "vpclmulqdq ymm4, ymm0, ymm8, 0x00",
    "vpclmulqdq ymm0, ymm0, ymm8, 0x11",
    "vpclmulqdq ymm5, ymm1, ymm8, 0x00",
    "vpclmulqdq ymm1, ymm1, ymm8, 0x11",
    "vpclmulqdq ymm6, ymm2, ymm8, 0x00",
    "vpclmulqdq ymm2, ymm2, ymm8, 0x11",
    "vpclmulqdq ymm7, ymm3, ymm8, 0x00",
    "vpclmulqdq ymm3, ymm3, ymm8, 0x11",
    "vmovdqu ymm10, [rsi]",
    "vmovdqu ymm11, [rsi + 32]",
    "vmovdqu ymm12, [rsi + 64]",
    "vmovdqu ymm13, [rsi + 96]",
    "vmovdqu [rdi], ymm10",
    "vmovdqu [rdi + 32], ymm11",
    "vmovdqu [rdi + 64], ymm12",
    "vmovdqu [rdi + 96], ymm13",
    "vpxor ymm0, ymm0, ymm4",
    "vpxor ymm1, ymm1, ymm5",
    "vpxor ymm2, ymm2, ymm6",
    "vpxor ymm3, ymm3, ymm7",
    "vpxor ymm0, ymm0, ymm10",
    "vpxor ymm1, ymm1, ymm11",
    "vpxor ymm2, ymm2, ymm12",
    "vpxor ymm3, ymm3, ymm13",
    "3:",
    "sub rsi, -128",
    "sub rdi, -128",
    "sub rdx, 128",
    "ja 2b",
    // Two by two over 64 bytes, the two over 32, the halves over 16.
    "vbroadcasti128 ymm8, [rcx + 16]",
    "vpclmulqdq ymm4, ymm0, ymm8, 0x00",
    "vpclmulqdq ymm0, ymm0, ymm8, 0x11",
    "vpclmulqdq ymm5, ymm1, ymm8, 0x00",
    "vpclmulqdq ymm1, ymm1, ymm8, 0x11",
    "vpxor ymm2, ymm2, ymm4",
    "vpxor ymm2, ymm2, ymm0",
    "vpxor ymm3, ymm3, ymm5",
    "vpxor ymm3, ymm3, ymm1",
    "vbroadcasti128 ymm8, [rcx + 32]",
    "vpclmulqdq ymm4, ymm2, ymm8, 0x00",
    "vpclmulqdq ymm2, ymm2, ymm8, 0x11",
    "vpxor ymm3, ymm3, ymm4",
    "vpxor ymm3, ymm3, ymm2",
    "vextracti128 xmm2, ymm3, 1",
    "vmovdqu xmm8, [rcx + 48]",
    "vpclmulqdq xmm4, xmm3, xmm8, 0x00",
    "vpclmulqdq xmm3, xmm3, xmm8, 0x11",
    "vpxor xmm2, xmm2, xmm4",
    "vpxor xmm2, xmm2, xmm3",
    "vmovdqu [r9], xmm2",
    "vzeroupper",
    "xor eax, eax",
    "ret",
    // store(rdi: to, rsi: from, rdx: len <= 8): one move, if len is a power of two.
    "ferroce_guarded_store:",
    "test dl, 8",
    "jz 7f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "xor eax, eax",
    "ret",
    "7:",
    "test dl, 4",
    "jz 8f",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "8:",
    "test dl, 2",
    "jz 9f",
    "movzx eax, word ptr [rsi]",
    "mov [rdi], ax",
    "add rsi, 2",
    "add rdi, 2",
    "9:",
    "test dl, 1",
    "jz 3f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "3:",
    "xor eax, eax",
    "ret",
    // compare_swap(rdi: word, rsi: compare, rdx: swap) -> (rax: fault, rdx: original)
    "ferroce_guarded_compare_swap:",
    "mov rax, rsi",
    "lock cmpxchg [rdi], rdx",
    "mov rdx, rax",
    "xor eax, eax",
    "ret",
    // fetch_add(rdi: word, rsi: add) -> (rax: fault, rdx: original)
    "ferroce_guarded_fetch_add:",
    "lock xadd [rdi], rsi",
    "mov rdx, rsi",
    "xor eax, eax",
    "ret",
    // swap(rdi: word, rsi: value) -> (rax: fault, rdx: original)
    "ferroce_guarded_swap:",
    "xchg [rdi], rsi",
    "mov rdx, rsi",
    "xor eax, eax",
    "ret",
    // load_byte(rdi: from)
    "ferroce_guarded_load_byte:",
    "movzx eax, byte ptr [rdi]",
    "xor eax, eax",
    "ret",
    // touch_byte(rdi: to): writes the byte that is there.
    "ferroce_guarded_touch_byte:",
    "lock or byte ptr [rdi], 0",
    "xor eax, eax",
    "ret",
    "ferroce_guarded_end:",
    "ferroce_guarded_fault:",
    "mov eax, 1",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

/// What an atomic routine returns, in two registers.
#[repr(C)]
struct Word {
    fault: u64,
    original: u64,
}

unsafe extern "C" {
    static ferroce_guarded_begin: u8;
    static ferroce_guarded_end: u8;
    static ferroce_guarded_fault: u8;
    fn ferroce_guarded_copy(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn ferroce_guarded_copy_wide(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn ferroce_guarded_copy_fold(
        to: *mut u8,
        from: *const u8,
        len: usize,
        folds: *const [u64; 2],
        crc: u32,
        rest: *mut [u8; 16],
    ) -> u32;
    fn ferroce_guarded_store(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn ferroce_guarded_compare_swap(word: *mut u64, compare: u64, swap: u64) -> Word;
    fn ferroce_guarded_fetch_add(word: *mut u64, add: u64) -> Word;
    fn ferroce_guarded_swap(word: *mut u64, value: u64) -> Word;
    fn ferroce_guarded_load_byte(from: *const u8) -> u32;
    fn ferroce_guarded_touch_byte(to: *mut u8) -> u32;
}

fn outcome(fault: u32) -> Result<(), MemoryFault> {
    if fault == 0 { Ok(()) } else { Err(MemoryFault) }
}

/// Copies `len` bytes in increasing address order, as every other thread sees it.
///
/// # Errors
/// Of either range, a page could not be reached; all but the last 31 bytes before it are copied.
///
/// # Safety
/// The caller may read `from` and write `to` as far as they are mapped. They do not overlap.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), MemoryFault> {
    install();
    let wide = len >= WIDE_FROM && std::arch::is_x86_feature_detected!("avx");
    // SAFETY: the caller's promise; a fault on the way returns 1, as the handler is installed.
    outcome(unsafe {
        if wide {
            ferroce_guarded_copy_wide(to, from, len)
        } else {
            ferroce_guarded_copy(to, from, len)
        }
    })
}

/// Copies as many of `len` bytes as can be summed on the way; how many, and their CRC-32 behind
/// bytes whose CRC-32 is `crc`.
///
/// # Errors
/// As [`copy`]; it is not known how much is copied.
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn copy_summing(
    to: *mut u8,
    from: *const u8,
    len: usize,
    crc: u32,
) -> Result<(usize, u32), MemoryFault> {
    let can_fold = std::arch::is_x86_feature_detected!("vpclmulqdq")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
        && std::arch::is_x86_feature_detected!("avx2");
    if !can_fold || len < BLOCK {
        return Ok((0, crc));
    }
    install();
    let blocks = len - len % BLOCK;
    let mut rest = [0; 16];
    // SAFETY: the caller's promise, and the CPU has the instructions; a fault on the way returns 1,
    // as the handler is installed.
    outcome(unsafe {
        ferroce_guarded_copy_fold(to, from, blocks, FOLDS.as_ptr(), !crc, &mut rest)
    })?;
    // Without the ones that a CRC begins with: they are in `rest` already.
    Ok((blocks, icrc::append(u32::MAX, &rest)))
}

/// Copies an integer of 1, 2, 4 or 8 bytes with one store, after all earlier writes.
///
/// # Errors
/// It could not be reached.
///
/// # Safety
/// As [`copy`]; `len` is 1, 2, 4 or 8, and `to` a multiple of it.
#[inline]
pub unsafe fn store(to: *mut u8, from: *const u8, len: usize) -> Result<(), MemoryFault> {
    install();
    // SAFETY: the caller's promise; a fault on the way returns 1, as the handler is installed.
    outcome(unsafe { ferroce_guarded_store(to, from, len) })
}

/// Runs `op` on an aligned word and returns its value before; a full barrier.
///
/// # Errors
/// The word cannot be read and written.
///
/// # Safety
/// The caller may write `word` as far as it is mapped. It is aligned.
#[inline]
pub unsafe fn atomic(word: *mut u64, op: AtomicOp) -> Result<u64, MemoryFault> {
    install();
    // SAFETY: the caller's promise; a fault on the way returns 1, as the handler is installed.
    let Word { fault, original } = unsafe {
        match op {
            AtomicOp::CompareSwap { compare, swap } => {
                ferroce_guarded_compare_swap(word, compare, swap)
            }
            AtomicOp::FetchAdd(add) => ferroce_guarded_fetch_add(word, add),
            AtomicOp::Store(value) => ferroce_guarded_swap(word, value),
        }
    };
    if fault == 0 { Ok(original) } else { Err(MemoryFault) }
}

/// Whether the byte can be read, and written if `write`. It keeps its value.
///
/// # Safety
/// The caller may read the byte, and write it if `write`, as far as it is mapped.
pub unsafe fn is_mapped(byte: *mut u8, write: bool) -> bool {
    install();
    // SAFETY: the caller's promise; a fault on the way returns 1, as the handler is installed.
    let fault = unsafe {
        if write { ferroce_guarded_touch_byte(byte) } else { ferroce_guarded_load_byte(byte) }
    };
    fault == 0
}

/// Who handled a signal before.
struct Previous {
    action: libc::sigaction,
    /// A handler that was to run once has run.
    spent: AtomicBool,
}

/// By the order of [`FAULT_SIGNALS`]. What is stored here is never freed.
static PREVIOUS: [AtomicPtr<Previous>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

/// Installs the handlers, the first time it is called.
#[inline]
pub fn install() {
    static INSTALLED: Once = Once::new();
    if !INSTALLED.is_completed() {
        INSTALLED.call_once(|| {
            for (signal, previous) in FAULT_SIGNALS.into_iter().zip(&PREVIOUS) {
                install_for(signal, previous);
            }
        });
    }
}

/// Where the kernel refuses, faults stay what they are without us.
fn install_for(signal: c_int, previous: &AtomicPtr<Previous>) {
    let remember = |action| {
        let record = Box::new(Previous { action, spent: AtomicBool::new(false) });
        previous.store(Box::into_raw(record), Ordering::Release);
    };
    let Some(before) = exchange_action(signal, None) else { return };
    // The handler may run as soon as it is installed, and needs this then.
    remember(before);
    if let Some(replaced) = exchange_action(signal, Some(&action_like(&before)))
        && replaced.sa_sigaction != before.sa_sigaction
    {
        // Another thread has installed one in between.
        remember(replaced);
    }
}

/// Our action with the mask and the flags of the one it stands before: the kernel then calls us
/// exactly as it would have called that one.
fn action_like(before: &libc::sigaction) -> libc::sigaction {
    let mut action = *before;
    action.sa_sigaction = on_fault as *const () as usize;
    if matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        action.sa_flags = libc::SA_ONSTACK;
    }
    action.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    action
}

/// Sets a signal's action, if one is given, and returns the one before. Async-signal-safe.
fn exchange_action(signal: c_int, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let mut old = MaybeUninit::zeroed();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both pointers are null or to an action of ours; the handlers passed here are
    // `on_fault`, SIG_DFL, or one that was installed before.
    let done = unsafe { libc::sigaction(signal, new, old.as_mut_ptr()) } == 0;
    // SAFETY: all zero is a valid action, and on success the kernel's stands there.
    done.then(|| unsafe { old.assume_init() })
}

/// The signal handler: async-signal-safe, takes no lock, allocates nothing, leaves errno alone
/// unless the process is about to die.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers to a handler installed with SA_SIGINFO, and nobody
    // else uses them while it runs.
    let (code, registers) = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        ((*info).si_code, &mut context.uc_mcontext.gregs)
    };
    // Else somebody has sent the signal, or the kernel tells of memory that nobody reads now.
    let by_instruction = code > 0 && !(signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO);
    let at = registers[libc::REG_RIP as usize] as usize;
    let guarded =
        (&raw const ferroce_guarded_begin).addr()..(&raw const ferroce_guarded_end).addr();
    if by_instruction && guarded.contains(&at) {
        registers[libc::REG_RIP as usize] = (&raw const ferroce_guarded_fault).addr() as i64;
        return;
    }
    // SAFETY: the three are what the kernel has passed.
    unsafe { pass_on(signal, info, context, by_instruction) };
}

/// Does what would have happened without us.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn pass_on(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    by_instruction: bool,
) {
    let index = FAULT_SIGNALS.iter().position(|&fault| fault == signal).unwrap_or(0);
    // SAFETY: null, or a record that is never freed and never changed but through its atomic.
    let previous = unsafe { PREVIOUS[index].load(Ordering::Acquire).as_ref() };
    let Some(previous) = previous else { return take_default(signal, by_instruction) };
    let (handler, flags) = (previous.action.sa_sigaction, previous.action.sa_flags);
    let once = flags & libc::SA_RESETHAND != 0;
    match handler {
        // What an instruction has caused cannot be ignored: the kernel kills.
        libc::SIG_IGN if !by_instruction => {}
        libc::SIG_IGN | libc::SIG_DFL => take_default(signal, by_instruction),
        _ if once && previous.spent.swap(true, Ordering::Relaxed) => {
            take_default(signal, by_instruction);
        }
        _ if flags & libc::SA_SIGINFO != 0 => {
            type Action = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: neither SIG_DFL nor SIG_IGN, so a handler, by its flags of this type, that
            // takes what the kernel has passed us.
            unsafe { std::mem::transmute::<usize, Action>(handler)(signal, info, context) };
        }
        _ => {
            type Handler = unsafe extern "C" fn(c_int);
            // SAFETY: as above, and by its flags of the older type.
            unsafe { std::mem::transmute::<usize, Handler>(handler)(signal) };
        }
    }
}

/// Lets the default action kill the process: a faulting instruction runs again when the handler
/// returns, so that a core dump shows it; a signal that was sent is sent again.
fn take_default(signal: c_int, by_instruction: bool) {
    // SAFETY: all zero is a valid action: SIG_DFL, no flags, empty mask.
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    exchange_action(signal, Some(&action));
    if !by_instruction {
        // SAFETY: async-signal-safe; the signal is one of ours.
        unsafe { libc::raise(signal) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};
    use std::sync::atomic::AtomicU64;

    use super::super::{HostMemory, copy_from, copy_from_and_sum, copy_to, probe};
    use super::*;

    const PAGE: usize = 4096;

    /// Anonymous pages.
    struct Pages(*mut u8, usize);

    impl Pages {
        fn new(count: usize) -> Pages {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping.
            let at = unsafe { libc::mmap(ptr::null_mut(), count * PAGE, rights, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            Pages(at.cast(), count * PAGE)
        }

        fn protect(&self, page: usize, rights: c_int) {
            // SAFETY: a page of ours, which no reference points into.
            let done = unsafe { libc::mprotect(self.page(page).cast(), PAGE, rights) };
            assert_eq!(done, 0);
        }

        fn page(&self, page: usize) -> *mut u8 {
            self.0.wrapping_add(page * PAGE)
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: ours, and gone after this.
            unsafe { libc::munmap(self.0.cast(), self.1) };
        }
    }

    fn read(addr: *const u8, len: usize) -> Result<Vec<u8>, MemoryFault> {
        let mut out = vec![0; len];
        // SAFETY: only addresses of `Pages`.
        let plain = unsafe { copy_from(addr, &mut out) }.map(|()| out);
        let mut out = vec![0; len];
        // SAFETY: as above.
        let summed = unsafe { copy_from_and_sum(addr, &mut out, 0) }.map(|_| out);
        assert!(plain == summed, "{len} bytes");
        plain
    }

    fn write(addr: *mut u8, data: &[u8]) -> Result<(), MemoryFault> {
        // SAFETY: only addresses of `Pages`.
        unsafe { copy_to(addr, data) }
    }

    #[test]
    fn a_hole_in_a_range_is_a_fault() {
        for rights in [libc::PROT_NONE, libc::PROT_READ] {
            let pages = Pages::new(3);
            pages.protect(1, rights);
            let lens = (1..300).step_by(7).chain([1000, 4096]);
            for (len, before) in lens.flat_map(|len| [0, 1, 8, 17, 40, 700].map(|at| (len, at))) {
                let addr = pages.page(1).wrapping_sub(before);
                let crosses = len > before;
                write(pages.page(0), &vec![0; PAGE]).unwrap();
                let data = vec![9; len];
                assert_eq!(write(addr, &data).is_err(), crosses, "{len}, {before} before");
                assert_eq!(read(addr, len).is_err(), crosses && rights == libc::PROT_NONE);
                let kept = read(addr, before.min(len)).unwrap();
                let stored = kept.iter().take_while(|&&byte| byte == 9).count();
                assert!(kept[stored..].iter().all(|&byte| byte == 0), "not a prefix");
                assert!(stored + 32 > kept.len(), "{stored} of {} bytes", kept.len());
            }
            assert_eq!(read(pages.page(2), PAGE).unwrap(), vec![0; PAGE]);
        }
    }

    #[test]
    fn every_operation_faults_on_memory_that_is_not_there() {
        // Where the kernel puts nothing by itself: other tests map memory meanwhile.
        let addr: *mut u8 = ptr::without_provenance_mut(0x2000_0000_0000);
        assert_eq!(read(addr, 8), Err(MemoryFault));
        assert_eq!(write(addr, &[1; 5000]), Err(MemoryFault));
        for op in [
            AtomicOp::CompareSwap { compare: 0, swap: 1 },
            AtomicOp::FetchAdd(1),
            AtomicOp::Store(1),
        ] {
            // SAFETY: aligned; nothing is mapped there.
            assert_eq!(unsafe { atomic(addr.cast(), op) }, Err(MemoryFault));
        }
        assert!(!probe(addr as u64, 1, false) && !probe(addr as u64, 1, true));
        // Not canonical, and the kernel's.
        for addr in [1usize << 62, usize::MAX - 8191] {
            assert_eq!(read(ptr::without_provenance(addr), 100), Err(MemoryFault));
            assert_eq!(write(ptr::without_provenance_mut(addr), &[1; 100]), Err(MemoryFault));
        }
    }

    #[test]
    fn rights_are_respected() {
        let pages = Pages::new(2);
        pages.protect(1, libc::PROT_READ);
        let word = pages.page(1).cast::<u64>();
        // SAFETY: aligned and in `pages`.
        let outcome = unsafe { atomic(word, AtomicOp::CompareSwap { compare: 1, swap: 1 }) };
        assert_eq!(outcome, Err(MemoryFault));
        let start = pages.page(0) as u64;
        assert!(probe(start, 2 * PAGE as u64, false) && !probe(start, 2 * PAGE as u64, true));
        assert!(probe(start, PAGE as u64, true) && !probe(start, PAGE as u64 + 1, true));
    }

    #[test]
    fn a_truncated_file_is_a_fault() {
        // SAFETY: a new file; the mapping stays until the process ends.
        let (file, at) = unsafe {
            let file = libc::memfd_create(c"truncated".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(file, 2 * PAGE as i64), 0);
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(ptr::null_mut(), 2 * PAGE, rights, libc::MAP_SHARED, file, 0);
            (file, at.cast::<u8>())
        };
        assert_eq!(write(at, &[3; 2 * PAGE]), Ok(()));
        // SAFETY: the file is ours.
        unsafe { libc::ftruncate(file, PAGE as i64) };
        assert_eq!(read(at.wrapping_add(100), PAGE), Err(MemoryFault));
        assert_eq!(write(at.wrapping_add(100), &[4; PAGE]), Err(MemoryFault));
        assert_eq!(read(at.wrapping_add(PAGE - 1), 1), Ok(vec![4]));
        // SAFETY: the file is ours.
        unsafe { libc::close(file) };
    }

    #[test]
    fn many_threads_fault_at_once() {
        let pages = Pages::new(2);
        pages.protect(1, libc::PROT_NONE);
        let addr = pages.page(0).expose_provenance();
        let faults = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let addr = ptr::with_exposed_provenance::<u8>(addr + 100);
                        let fault = read(addr, PAGE).is_err() && read(addr, 100).is_ok();
                        faults.fetch_add(fault.into(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(faults.into_inner(), 8 * 500);
    }

    /// Names the case that a child process, made by [`run_child`], plays.
    const CASE: &str = "FERROCE_TEST_FAULT_CASE";

    unsafe extern "C" fn exit_41(_: c_int) {
        // SAFETY: async-signal-safe.
        unsafe { libc::_exit(41) };
    }

    unsafe extern "C" fn exit_42(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: async-signal-safe, and the kernel's `info`.
        unsafe { libc::_exit(if (*info).si_signo == signal { 42 } else { 1 }) };
    }

    /// Returns: what a handler that runs once does, so that the fault comes again.
    unsafe extern "C" fn ignore(_: c_int) {}

    fn handle(handler: usize, flags: c_int) {
        for signal in FAULT_SIGNALS {
            // SAFETY: all zero is a valid action.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            exchange_action(signal, Some(&action)).unwrap();
        }
    }

    /// Not a test by itself: with [`CASE`] set, sets handlers and faults.
    #[test]
    fn child() {
        let Ok(case) = std::env::var(CASE) else { return };
        match case.split_once(' ').unwrap().0 {
            "default" => handle(libc::SIG_DFL, 0),
            "ignored" => handle(libc::SIG_IGN, 0),
            "simple" => handle(exit_41 as *const () as usize, 0),
            "once" => handle(ignore as *const () as usize, libc::SA_RESETHAND),
            _ => handle(exit_42 as *const () as usize, libc::SA_SIGINFO | libc::SA_NODEFER),
        }
        let pages = Pages::new(1);
        pages.protect(0, libc::PROT_NONE);
        HostMemory::new();
        assert_eq!(read(pages.page(0), 1), Err(MemoryFault));
        if case.ends_with("raised") {
            // SAFETY: a signal to ourselves.
            unsafe { libc::raise(libc::SIGSEGV) };
        } else {
            // SAFETY: none: this is the fault the test is about.
            unsafe { ptr::read_volatile(pages.page(0)) };
        }
        std::process::exit(43);
    }

    fn run_child(case: &str) -> ExitStatus {
        let name = concat!(module_path!(), "::child");
        let name = name.split_once("::").unwrap().1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact"]).env(CASE, case).output().unwrap().status
    }

    #[test]
    fn other_faults_go_to_the_handler_that_was_there() {
        let killed = (None, Some(libc::SIGSEGV));
        let cases = [
            ("default read", killed),
            ("default raised", killed),
            ("ignored read", killed),
            ("ignored raised", (Some(43), None)),
            ("simple read", (Some(41), None)),
            ("simple raised", (Some(41), None)),
            ("once read", killed),
            ("once raised", (Some(43), None)),
            ("siginfo read", (Some(42), None)),
            ("siginfo raised", (Some(42), None)),
        ];
        for (case, expected) in cases {
            let status = run_child(case);
            assert_eq!((status.code(), status.signal()), expected, "{case}");
        }
    }
}
