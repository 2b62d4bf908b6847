/* thin.h - dumps made coarser: layer outputs, logits and ids alone. */
#ifndef CLOVER_TEST_THIN_H
#define CLOVER_TEST_THIN_H

/* Every .safetensors in the folder, in place. Fails the test when something fails. */
void thin_folder(const char *folder);

#endif
