/* chat.c - the chat form: turns as text, to be encoded with special tokens. [CHT] */
#include <stdlib.h>
#include <string.h>
#include "../clover.h"
#include "../error.h"
#include "names.h"

static const char turn_start[] = "<|im_start|>", turn_end[] = "<|im_end|>\n";
static const char thinking[] = "<think>\n", no_thinking[] = "<think>\n\n</think>\n\n";

static bool is(const char *role, const char *name) {
    return strcmp(role, name) == 0;
}

static CloverStatus check_messages(const CloverMessage *messages, int64_t n, CloverError *err) {
    if (n < 1) return error_set(err, CLOVER_USAGE, "a chat needs at least one message");
    for (int64_t i = 0; i < n; i++) {
        const char *role = messages[i].role;
        char shown[NAME_SHOWN];
        if (!role || !messages[i].content)
            return error_set(err, CLOVER_USAGE, "message %lld has no %s", (long long)i, role ? "content" : "role");
        if (!is(role, "system") && !is(role, "user") && !is(role, "assistant"))
            return error_set(err, CLOVER_USAGE, "message %lld: role %s: expected system, user or assistant", (long long)i,
                             name_show(role, strlen(role), shown));
        if (is(role, "system") && i > 0)
            return error_set(err, CLOVER_USAGE, "message %lld: a system message stands first or not at all", (long long)i);
    }
    if (!is(messages[n - 1].role, "user"))
        return error_set(err, CLOVER_USAGE, "the last message is the %s's: expected the user's, for the model to answer",
                         messages[n - 1].role);
    return CLOVER_OK;
}

static char *put(char *to, const char *text) {
    size_t length = strlen(text);
    memcpy(to, text, length);
    return to + length;
}

/* Earlier answers stand as they are given: whether their thinking is to be left out is not known of this model, so it is
 * the caller's choice. [CHT-1] [CHT-2] */
CloverStatus clover_chat_text(const CloverMessage *messages, int64_t n, bool think, char **out, CloverError *err) {
    if (check_messages(messages, n, err) != CLOVER_OK) return err->status;
    size_t room = sizeof turn_start + sizeof "assistant\n" + sizeof no_thinking;
    for (int64_t i = 0; i < n; i++)
        room += sizeof turn_start + strlen(messages[i].role) + 1 + strlen(messages[i].content) + sizeof turn_end;
    char *text = malloc(room);
    if (!text) return error_memory(err, "a chat", room);

    char *to = text;
    for (int64_t i = 0; i < n; i++) {
        to = put(to, turn_start);
        to = put(to, messages[i].role);
        to = put(to, "\n");
        to = put(to, messages[i].content);
        to = put(to, turn_end);
    }
    to = put(to, turn_start);
    to = put(to, "assistant\n");
    to = put(to, think ? thinking : no_thinking);
    *to = '\0';
    *out = text;
    return CLOVER_OK;
}
