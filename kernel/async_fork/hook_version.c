// SPDX-License-Identifier: GPL-2.0
/* Hooks of functions that depend on the kernel's version. */
#include "internal.h"
#include "hooks.h"
#include "symbols.h"

#include AF_VERSION_HOOKS
