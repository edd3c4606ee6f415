// SPDX-License-Identifier: GPL-3.0-or-later
#include <linux/module.h>

int blcr_imports_there(void);
int blcr_imports_there(void)
{
	return 1;
}
EXPORT_SYMBOL_GPL(blcr_imports_there);

MODULE_DESCRIPTION("what the other module needs");
MODULE_LICENSE("GPL");
