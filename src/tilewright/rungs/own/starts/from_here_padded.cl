/* The next kernel reads what this one has written: larger planes, and no border to test for. */
#undef TW_HEIGHT
#undef TW_WIDTH
#undef TW_PAD_Y
#undef TW_PAD_X
#define TW_HEIGHT TW_PADDED_Y
#define TW_WIDTH TW_PADDED_X
#define TW_PAD_Y 0
#define TW_PAD_X 0
