// SPDX-License-Identifier: GPL-3.0-or-later
#include <linux/module.h>
#include <linux/proc_fs.h>

int blcr_imports_there(void);

static unsigned int cr_ktrace_mask;
module_param(cr_ktrace_mask, uint, 0444);

static struct proc_dir_entry *directory;
static const struct proc_ops nothing;

static int __init begin(void)
{
	if (!blcr_imports_there())
		return -ENODEV;
	directory = proc_mkdir("checkpoint", NULL);
	if (!directory || !proc_create("ctrl", 0666, directory, &nothing)) {
		proc_remove(directory);
		return -ENOMEM;
	}
	return 0;
}

static void __exit end(void)
{
	proc_remove(directory);
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("stands where BLCR's module would");
MODULE_LICENSE("GPL");
